"""One colour for each method in every picture: Okabe and Ito's, which colour-blind people tell apart."""

COLORS = {
    "maml": "#777777",
    "anil": "#009e73",
    "boil": "#cc79a7",
    "maml++": "#56b4e9",
    "pmeta-lr": "#e69f00",
    "pmeta": "#d55e00",
}
