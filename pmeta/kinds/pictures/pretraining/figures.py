"""What a pre-training measures: its embedding by nearest centroids."""

from pmeta.training.figures import Figure, Figures

FIGURES = Figures(
    {
        "epoch": Figure("epochs trained for", "epochs"),
        "loss": Figure("loss on training pictures", "", "lower"),
        "train_accuracy": Figure("accuracy on training pictures", "%", "higher"),
        "val_1shot": Figure("nearest centroid, 1-shot", "%", "higher"),
        "val_5shot": Figure("nearest centroid, 5-shot", "%", "higher"),
        "val_accuracy": Figure("nearest-centroid accuracy, 1 and 5 shots", "%", "higher"),
    },
    score="val_accuracy",
    ci95="",
    count="epoch",
    line="epoch {epoch:>3}  loss {loss:.3f}  train {train_accuracy:.1f} %  nearest centroid "
    "{val_1shot:.2f} ± {val_1shot_ci95:.2f} % (1-shot) {val_5shot:.2f} ± {val_5shot_ci95:.2f} % "
    "(5-shot)",
    best_line="best {val_accuracy:.1f} %",
    reached="{val_1shot:.2f} % (1-shot), {val_5shot:.2f} % (5-shot) by nearest centroid on "
    "validation after {epoch} epochs",
)
