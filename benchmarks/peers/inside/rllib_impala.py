"""RLlib IMPALA."""

from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.impala.torch.impala_torch_learner import IMPALATorchLearner
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from rllib_training import train
from work import BATCH, arguments


def main():
    work = arguments()
    if work.goal == "score":
        # Tuned for CartPole-v1 by RLlib's own examples.
        config = IMPALAConfig().training(
            train_batch_size_per_learner=500, grad_clip=40.0, lr=5e-4, vf_loss_coeff=0.05, entropy_coeff=0.0
        )
        train(work, config, IMPALATorchLearner, unroll=50, envs=8, model=DefaultModelConfig(vf_share_layers=True))
    else:
        train(work, IMPALAConfig().training(train_batch_size_per_learner=BATCH, lr=6e-4), IMPALATorchLearner)


if __name__ == "__main__":
    main()
