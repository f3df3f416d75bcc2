"""RLlib PPO."""

from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from rllib_training import train
from work import ACTORS, BATCH, ENVS, HIDDEN, SPREAD_EPOCHS, SPREAD_MINIBATCHES, SPREAD_RATE, SPREAD_UNROLL, arguments


def main():
    work = arguments()
    if work.task == "spread":
        timesteps = ACTORS * ENVS * SPREAD_UNROLL
        config = PPOConfig().training(
            train_batch_size_per_learner=timesteps,
            # Counted in transitions of agents, of which there are three.
            minibatch_size=3 * timesteps // SPREAD_MINIBATCHES,
            num_epochs=SPREAD_EPOCHS,
            lr=SPREAD_RATE,
            lambda_=0.95,
            clip_param=0.2,
            entropy_coeff=0.01,
            grad_clip=0.5,
        )
        model = DefaultModelConfig(fcnet_hiddens=list(HIDDEN), fcnet_activation="tanh", vf_share_layers=False)
        train(work, config, PPOTorchLearner, unroll=SPREAD_UNROLL, model=model)
    elif work.goal == "score":
        # Tuned for CartPole-v1 by RLlib's own examples.
        config = PPOConfig().training(lr=3e-4, num_epochs=6, vf_loss_coeff=0.01)
        model = DefaultModelConfig(fcnet_hiddens=[32], fcnet_activation="linear", vf_share_layers=True)
        train(work, config, PPOTorchLearner, envs=8, unroll="auto", model=model)
    else:
        config = PPOConfig().training(train_batch_size_per_learner=BATCH, minibatch_size=BATCH, num_epochs=1, lr=6e-4)
        train(work, config, PPOTorchLearner)


if __name__ == "__main__":
    main()
