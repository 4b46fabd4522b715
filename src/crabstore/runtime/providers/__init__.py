"""Model providers: the protocol, a scripted one, and the official SDKs, imported only where they are used."""
