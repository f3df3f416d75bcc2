"""Trained policies: loading, acting, evaluation, export, videos, warm starts."""
