"""What is ours in the Karmada control plane: put there, renewed and removed by the chart's Jobs."""
