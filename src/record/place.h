/*
 * The row of a place: the thing that is leased. Only lease/ writes it; drivers and providers read
 * it. A place is finished by the driver, provider and config recorded on it, never by what its
 * environment says today.
 */
#pragma once

#include "record/kinds.h"
#include "record/record.h"

/*
 * A directory of this host that a place has as its /workspace. Only places on this host can have
 * one (the trait mounts_workspace of their maker); others refuse it with ERR_UNPROCESSABLE. Whether the caller may
 * name the directory is judged before it gets here.
 */
enum workspace_how {
	WORKSPACE_OVERLAY, /* under a layer of the place's own, which takes all writes */
	WORKSPACE_BIND,    /* the directory itself */
};
struct workspace_mount {
	const char *path; /* absolute, canonical */
	enum workspace_how how;
	const char *masks; /* overlay: file that says what is not to be seen; NULL: nothing */
};
const char *workspace_how_name(enum workspace_how how); /* "overlay", "bind" */

/* A config as rows have it: secrets by their names. What makers get is a runtime config made of
 * it (driver/maker.h), which is another type, so that it cannot get into a row or an answer. */
struct stored_config {
	json_t *json;
};

struct place {
	char id[ID_SIZE], company_id[ID_SIZE], environment_id[ID_SIZE];
	enum driver_kind driver;
	char *provider;            /* "local", "fake", ... */
	char *provider_ref;        /* the provider's name for it, unique over all places */
	char *scope, *fingerprint; /* what reuse must match */
	enum place_state state;
	char holder_lease[ID_SIZE]; /* "" when nobody holds it */
	int64_t generation, epoch;
	char relay_key[65]; /* hex; what server and relay prove to each other. Never shown */
	char node_id[ID_SIZE], boot_id[ID_SIZE];
	int64_t boot_epoch;
	enum fencing fencing;
	bool discoverable; /* its provider can list what it has */
	int64_t absence_ms;
	struct stored_config config; /* of its maker, at the time it was made */
	json_t *metadata;            /* what the provider said about it */
	char *cleanup_action;        /* "release" or "destroy" while state is cleanup */
	int64_t cleanup_attempts, cleanup_next_at;
	char *cleanup_reason;
	int64_t retain_until;
	int64_t created_at, updated_at;
};
void place_clear(struct place *place);
#define _cleanup_place_ _cleanup_(place_clear)
