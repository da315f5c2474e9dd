/*
 * For the providers themselves: state that a provider keeps beside its directory, one per host.
 */
#pragma once

#include "driver/provider.h"

struct provider_state_kind {
	const char *key; /* of the provider */
	/* In the provider's directory, which outlives the state: fd and path may be kept. */
	int (*open)(struct provider_host *host, int dirfd, const char *path, void **state,
		    struct error *err);
	void (*free)(void *state);
};
/* Opened on first use, once whoever comes first; freed with the host. Borrowed. */
int provider_host_state(struct provider_host *host, const struct provider_state_kind *kind,
			void **state, struct error *err);
