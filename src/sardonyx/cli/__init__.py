"""The command line: `sardonyx run | inspect | check | explain | bench | ops | cache`. Uses the public names of the package only."""
