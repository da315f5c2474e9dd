/*
 * A provider makes the sandboxes behind driver `sandbox` (spec 01 part B). Calls may block until
 * their deadline; none holds a lock or a transaction; none writes rows. Every call goes through the
 * provider_* functions below, which check that the config is for this provider; only
 * driver/sandbox.c calls those, so that the fault points of the driver_* wrappers stand around
 * every provider call.
 *
 * Names are deterministic: provider_ref derives from the request alone, so that an intent written
 * before `acquire` can be compared with `inventory` after a crash.
 */
#pragma once

#include "base/clock.h"
#include "base/json.h"
#include "place/exec.h"
#include "record/allow.h"
#include "record/kinds.h"
#include "record/place.h"

struct probe {
	bool ok;
	enum driver_kind driver;
	char *summary;
	json_t *details; /* object or NULL */
};
void probe_clear(struct probe *probe);
json_t *probe_json(const struct probe *probe);

struct provider_request {
	const json_t *config; /* runtime config of this provider */
	const char *environment_id;
	const char *run_id; /* NULL for an operator's lease */
	const char *lease_id;
	const char *issue_id; /* NULL for none */
	int64_t deadline_ms;  /* how long the call may take; 0: the provider's default */
	/* The holding it will be, for providers that make the place's relay with the place. */
	const char *place_id; /* NULL: not known */
	int64_t generation;
	const uint8_t *key; /* PLACE_KEY_SIZE bytes */
	bool keep_files;    /* after the end of its processes, until it is released or destroyed */
	const struct workspace_mount *workspace; /* NULL: none is to be mounted */
	const struct place_bounds *bounds; /* NULL: it can have no path of the host by its config */
};

struct provider_lease {
	char *ref;          /* provider's name of the place */
	json_t *metadata;   /* object */
	int64_t expires_at; /* 0: the provider sets no end */
	bool no_relay;      /* this place takes commands by `execute` only */
};
void provider_lease_clear(struct provider_lease *lease);

struct provider_inventory {
	char **refs; /* NULL-terminated */
};

struct provider_host; /* what providers are given; see host.c */

struct provider {
	const char *key;
	const char *display_name;
	const struct config_schema *config; /* the same with its rules; see driver/config.h */
	enum fencing fencing;
	bool discoverable;
	bool supports_reuse;
	bool fleeting;         /* nothing outlives this machine unless files are to be kept */
	bool mounts_workspace; /* its places are on this host and can have its directories */

	/* What of this host a place of that config has; NULL: nothing. `out` is empty. */
	void (*needs)(const json_t *config, struct place_needs *out);
	/* Typed, defaulted, trimmed; unknown keys refused. New reference. */
	json_t *(*normalize)(const json_t *config, bool allow_faults, struct error *err);
	int (*probe)(struct provider_host *host, const json_t *config, struct probe *out,
		     struct error *err);
	/* The name acquire will use; known before anything is made. */
	char *(*ref)(const struct provider_request *request);
	int (*acquire)(struct provider_host *host, const struct provider_request *request,
		       struct provider_lease *out, struct error *err);
	/* 1 resumed, 0 cannot be resumed (make a new one), -1 error (same, with a reason). */
	int (*resume)(struct provider_host *host, const struct provider_request *request,
		      const char *ref, struct provider_lease *out, struct error *err);
	/* End of holding: nothing runs there any more; files of a reusable place stay. */
	int (*release)(struct provider_host *host, const json_t *config, const char *ref,
		       const char *status, struct error *err);
	int (*destroy)(struct provider_host *host, const json_t *config, const char *ref,
		       struct error *err);
	int (*inventory)(struct provider_host *host, struct provider_inventory *out,
			 struct error *err);
	json_t *(*config_from_metadata)(const json_t *metadata); /* NULL: cannot */
	/*
	 * Opens the place for commands after acquire or a restart; ids, key and absence are filled
	 * in. NULL: by the directory in remoteCwd.
	 */
	int (*open)(struct provider_host *host, const json_t *config, const char *ref,
		    struct exec_place *place, struct error *err);
	/* Starts a command there; spec->cwd NULL means the place's own directory. */
	int (*start)(struct provider_host *host, const json_t *config, const char *ref,
		     const json_t *metadata, const struct exec_spec *spec, struct exec **exec,
		     struct error *err);
	/*
	 * One command from its start to its end (shell.h), for places that cannot take a relay.
	 * NULL: all places of this provider can.
	 */
	int (*execute)(struct provider_host *host, const json_t *config, const char *ref,
		       const json_t *metadata, const struct one_shot_call *call,
		       struct one_shot_result *result, struct error *err);
	/* Ends every process of the place, at most wait_ms. */
	int (*stop)(struct provider_host *host, const json_t *config, const char *ref,
		    const char *place_id, int64_t wait_ms, struct error *err);
};

extern const struct provider PROVIDER_FAKE, PROVIDER_NATIVE;

struct provider_host_options {
	int state_dirfd;        /* <data>/providers; duplicated */
	const char *state_path; /* its path, for commands that run there */
	bool allow_fake;        /* the fake provider may be saved and may be told to misbehave */
	struct clock *clock;
	struct places *places;
	const char *socket_dir; /* of the API's socket: no place may see it; NULL: none */
};
int provider_host_new(const struct provider_host_options *options, struct provider_host **host,
		      struct error *err);
void provider_host_free(struct provider_host *host);
bool provider_host_allows_fake(const struct provider_host *host);
struct clock *provider_host_clock(const struct provider_host *host);
struct places *provider_host_places(const struct provider_host *host);
const char *provider_host_socket_dir(const struct provider_host *host);
/*
 * A directory of the provider's own below state_dirfd, made on first use. The fd is borrowed; the
 * path, if asked for, is allocated.
 */
int provider_host_dir(struct provider_host *host, const char *key, int *dirfd, char **path,
		      struct error *err);

/* The registry (B.3). */
const struct provider *const *provider_list(void);     /* NULL-terminated */
const struct provider *provider_find(const char *key); /* NULL when not built in */
/* `Sandbox provider "<key>" is not registered as a built-in provider.` */
const struct provider *provider_require(const char *key, struct error *err);

int provider_probe(struct provider_host *host, const json_t *config, struct probe *out,
		   struct error *err);
int provider_acquire(struct provider_host *host, const struct provider_request *request,
		     struct provider_lease *out, struct error *err);
int provider_resume(struct provider_host *host, const struct provider_request *request,
		    const char *ref, struct provider_lease *out, struct error *err);
int provider_release(struct provider_host *host, const json_t *config, const char *ref,
		     const char *status, struct error *err);
int provider_destroy(struct provider_host *host, const json_t *config, const char *ref,
		     struct error *err);
int provider_inventory_list(struct provider_host *host, const char *key,
			    struct provider_inventory *out, struct error *err);
int provider_start(struct provider_host *host, const char *key, const json_t *config,
		   const char *ref, const json_t *metadata, const struct exec_spec *spec,
		   struct exec **exec, struct error *err);
int provider_execute(struct provider_host *host, const char *key, const json_t *config,
		     const char *ref, const json_t *metadata, const struct one_shot_call *call,
		     struct one_shot_result *result, struct error *err);
int provider_stop(struct provider_host *host, const char *key, const json_t *config,
		  const char *ref, const char *place_id, int64_t wait_ms, struct error *err);
/* 1 opened; 0: this provider leaves it to the driver. */
int provider_open(struct provider_host *host, const char *key, const json_t *config,
		  const char *ref, struct exec_place *place, struct error *err);
void provider_inventory_clear(struct provider_inventory *inventory);

/* Config from lease metadata (B.4). New reference or NULL. */
json_t *provider_config_loose(const json_t *metadata);
