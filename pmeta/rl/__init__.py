"""Few-shot reinforcement learning (Sec. 4.3, Table 3): 2D navigation and Half-Cheetah velocity."""
