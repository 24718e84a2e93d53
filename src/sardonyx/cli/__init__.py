"""The command line: `sardonyx run | inspect | check | explain | bench | ops | cache`. Uses public names only."""
