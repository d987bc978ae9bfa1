"""Generation by several engines: shards that are leased, and journals that only grow (`complete.complete_sharded`)."""
