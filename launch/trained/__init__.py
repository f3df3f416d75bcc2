"""What is done with trained policies: loading, acting, evaluation, export, videos, warm starts."""
