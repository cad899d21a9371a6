"""The decode node: promises pages, receives KV, generates; prefills by itself when told to."""
