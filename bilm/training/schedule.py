"""The learning rate of each step of a run."""

from dataclasses import dataclass

from bilm.options.run_options import DECAYS, RunOptions


@dataclass(frozen=True)
class Schedule:
    """Learning rate by step: warm-up, constant rate, and decay until the end of the run.

    Step k of the warm-up uses k / `warmup_steps` of `learning_rate`. The decay starts after the
    fraction `decay_start` of the run, but not before the warm-up ends. It follows a function of
    `DECAYS`, and reaches `decay_floor` times `learning_rate` after the last step.

    `n_steps`, the length of the run, is required only if the rate decays or the warm-up is limited:
    if `limits_warmup`, it takes at most a fifth of the run, as runs of `auto` may become shorter.
    """

    options: RunOptions
    n_steps: int = 0
    limits_warmup: bool = False

    def __call__(self, step: int) -> float:
        """Return the learning rate of step `step`, counted from 0."""
        options = self.options
        done = step + 1
        if done < self.warmup_steps:
            return self.full * done / self.warmup_steps
        if not self.is_decaying(step):
            return self.full
        progress = min(1.0, (step - self.decay_start) / (self.n_steps - self.decay_start))
        left = DECAYS[options.decay](progress)
        return self.full * (options.decay_floor + (1 - options.decay_floor) * left)

    @property
    def full(self) -> float:
        """The largest rate."""
        rate = self.options.learning_rate
        assert rate is not None  # `RunOptions` replaces None by the optimizer's rate
        return rate

    @property
    def warmup_steps(self) -> int:
        """Number of steps of the warm-up."""
        requested = self.options.warmup_steps
        return min(requested, self.n_steps // 5) if self.limits_warmup else requested

    @property
    def decay_start(self) -> int:
        """The last step with the full rate, counted from 0, if the rate decays."""
        start = round(self.options.decay_start * self.n_steps)
        return min(max(start, self.warmup_steps), self.n_steps - 1)

    def is_decaying(self, step: int) -> bool:
        """Return whether the decay of the rate has begun before step `step`, counted from 0."""
        return self.options.decay != "none" and step > self.decay_start

    def __str__(self) -> str:
        options = self.options
        decay = f"{options.decay} decay from step {self.decay_start:,}"
        return (
            f"{options.optimizer}, learning rate {self.full:g}, {self.warmup_steps:,} steps of "
            f"warm-up, {'no decay' if options.decay == 'none' else decay}"
        )
