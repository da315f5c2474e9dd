/*
 * One acquire on its way: what was asked for, what was decided, what the provider answered. The
 * story is told in acquire.c; intend.c and grant.c are its two transactions.
 */
#pragma once

#include "base/sha256.h"
#include "lease/lease_internal.h"

enum plan {
	PLAN_UNDECIDED, /* lease.intend has not run to its end */
	PLAN_BUSY,      /* no room, nothing written */
	PLAN_EXISTS,    /* the lease of this id is there already */
	PLAN_CREATE,    /* intent written: make a place */
	PLAN_RESUME,    /* intent written and the place claimed: wake it */
};

struct acquisition {
	struct leases *leases;
	const struct lease_request *request;
	struct flight flight;
	char lease_id[ID_SIZE];
	enum lease_policy policy;
	bool fleeting; /* nothing of the place outlives the machine */
	struct stored_config config;
	struct place_request place_request;
	struct place_bounds bounds;
	char *provider, *provider_ref;
	char *scope; /* "" for a place that is not reused */
	char fingerprint[SHA256_HEX_SIZE];
	int64_t now;

	/* Decided by lease.intend, afresh each time it runs. */
	enum plan plan;
	struct place place;     /* RESUME: the claimed one; afterwards what was granted */
	char victim[ID_SIZE];   /* a place that must be destroyed first, "" for none */
	bool victim_in_the_way; /* it has the name that the new one gets */
	char place_id[ID_SIZE]; /* CREATE: what the new place will be called */
	int64_t generation;
	uint8_t key[PLACE_KEY_SIZE];
	char relay_key[65];
	const char *busy_reason; /* a word */
	char busy_text[256];     /* a sentence */
	char busy_holder[ID_SIZE];

	struct place_grant grant;
	bool refused;    /* the provider did not give one */
	bool ref_in_use; /* the provider's answer names a place that somebody has */
	struct lease lease;
};
void acquisition_clear(struct acquisition *a);
#define _cleanup_acquisition_ _cleanup_(acquisition_clear)

/* Policy, configs, names, scope and fingerprint (reuse.c). */
int acquisition_prepare(struct acquisition *a, struct error *err);
/* Why a free place cannot serve this request; NULL when it can. */
const char *reuse_mismatch(const struct acquisition *a, const struct place *place);

/* 0 with the plan decided and, unless it is BUSY, written. */
int intend(struct acquisition *a, struct error *err);
/* The claimed place cannot be resumed: it is queued to be destroyed and a new one is planned. */
int plan_another_place(struct acquisition *a, const char *why, struct error *err);

/* The provider has answered: place, lease and activity in one step. */
int grant(struct acquisition *a, struct error *err);
/*
 * Takes everything back after a failure; `asked`: a provider may have made something. Never fails:
 * at worst a later sweep finishes it.
 */
void acquisition_undo(struct acquisition *a, bool asked, const struct error *why);
