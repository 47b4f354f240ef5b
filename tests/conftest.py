"""Settings that all tests share."""

from hypothesis import HealthCheck, settings

# Machines are shared, so a time limit for one example would fail at random.
settings.register_profile(
    "txlog", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("txlog")
