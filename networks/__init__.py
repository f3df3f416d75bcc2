"""Networks: torsos, residual networks, recurrent cores, heads, action distributions and normalizers."""
