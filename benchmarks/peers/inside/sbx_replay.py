"""DQN on CartPole-v1 and SAC on Pendulum-v1 of sbx, which is Stable-Baselines3 with compiled updates on JAX."""

from sb3_replay import main
from sbx import DQN, SAC

if __name__ == "__main__":
    main(DQN, SAC)
