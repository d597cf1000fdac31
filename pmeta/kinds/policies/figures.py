"""What runs of policies measure: returns before and after adaptation."""

from pmeta.training.figures import COST_FIGURES, TO_ADAPT, Figure, Figures

FIGURES = Figures(
    {
        "before": Figure("return before adaptation, training tasks", "", "higher"),
        "after": Figure("return after adaptation, training tasks", "", "higher"),
        "val_before": Figure("return before adaptation", "", "higher"),
        "val_after": Figure("return after adaptation", "", "higher"),
        "val_ci95": Figure("interval of the return after adaptation"),
        "kl": Figure("KL divergence of an update"),
        "gain": Figure("how much an update lowers the surrogate", "", "higher"),
        "step": Figure("share of the natural step that is taken"),
        **COST_FIGURES,
    },
    score="val_after",
    ci95="val_ci95",
    line="{epoch:>5} epochs  return {before:.1f} -> {after:.1f}  val {val_before:.1f} -> "
    "{val_after:.2f} ± {val_ci95:.2f}  memory {memory_mb:.2f} MB",
    best_line="best val {val_after:.1f}",
    reached="{val_after:.2f} ± {val_ci95:.2f} on validation after {tasks} tasks, " + TO_ADAPT,
)
