#pragma once

#include "base/json.h"

struct places;

struct native_probe {
	const char *place_id; /* open and made */
	int64_t generation;
	int dirfd;              /* the provider's directory */
	const char *state_path; /* a path of the host that must not be seen */
	bool network;           /* it was asked for */
};
/* Tries forbidden things in the place: [{attempt, denied}], and whether all were denied. */
int native_attempts(struct places *places, const struct native_probe *probe, json_t **evidence,
		    bool *ok, struct error *err);
void native_keep_evidence(int dirfd, const json_t *details);
