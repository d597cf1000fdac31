"""Few-shot reinforcement learning (Sec. 4.3, Table 3): 2D navigation and Half-Cheetah velocity."""


def register() -> None:
    """Make `pmeta/Navigation-v0` and `pmeta/CheetahVelocity-v0` known to gymnasium.make.

    An installed pmeta does this by itself when gymnasium is imported.
    """
    import gymnasium

    for name in ("Navigation", "CheetahVelocity"):
        if f"pmeta/{name}-v0" not in gymnasium.registry:
            gymnasium.register(
                f"pmeta/{name}-v0", f"pmeta.rl.gym_envs:{name}Env", max_episode_steps=200
            )
