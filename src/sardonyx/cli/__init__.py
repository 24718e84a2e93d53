"""The command line: `sardonyx run | inspect | check | ops`. Uses the public names of the package only."""
