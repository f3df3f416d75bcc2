"""PPO of sbx, which is Stable-Baselines3 with compiled updates on JAX."""

from flax.linen import tanh
from sb3_ppo import main
from sbx import PPO

if __name__ == "__main__":
    main(PPO, tanh)
