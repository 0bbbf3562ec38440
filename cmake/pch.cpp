// Holds nothing: it only gives the precompiled header a target to belong to.
