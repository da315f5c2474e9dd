/*
 * A driver reaches places. All calls may block until their deadline; none may hold a lock or a
 * transaction; none writes rows: only lease/ does.
 *
 * Drivers form a table given to whoever needs one, so tests can give another. Choosing: to acquire,
 * by the environment's driver; for everything else by the driver recorded on the place.
 */
#pragma once

#include "driver/provider.h"
#include "record/environment.h"
#include "record/place.h"

/* What drivers need of the server; filled once in main. */
struct driver_host {
	struct provider_host *providers;
	struct places *places;
	struct clock *clock;
	const char *home_path; /* where local commands without a directory run */
	struct db *db;         /* where the values of an environment's env are; NULL: nowhere */
	bool no_local;         /* this server runs no command on its own host */
};

struct place_request {
	const struct environment *environment;
	const json_t *config; /* runtime config: secrets resolved; never stored */
	const char *lease_id, *run_id, *issue_id, *agent_id, *workspace_id; /* NULL for none */
	const char *workspace_mode;                                         /* NULL for none */
	const struct workspace_mount *workspace; /* NULL: none is to be mounted */
	const struct place_bounds *bounds;       /* as in struct provider_request */
	int64_t deadline_ms;
	/* The holding this will be; NULL and 0 where it is not known yet. */
	const char *place_id;
	int64_t generation;
	const uint8_t *key;
	bool keep_files; /* a place that may be looked at after its processes have ended */
};

/* What acquire or resume brought; the caller puts it on the place row. */
struct place_grant {
	char *provider;      /* "local", "fake", ... */
	char *provider_ref;  /* unique name, also when the wire shows null */
	bool ref_is_private; /* providerLeaseId stays null on the wire (local) */
	json_t *metadata;
	int64_t expires_at;
	enum fencing fencing;
	bool discoverable;
};
void place_grant_clear(struct place_grant *grant);

/* What a driver makes of spec 01 E.5: where the workspace is. */
struct place_workspace {
	const char *local_path, *remote_path, *mode; /* NULL for none */
	const json_t *request;                       /* workspaceRealizationRequest */
};
struct place_realization {
	char *cwd;
	json_t *metadata; /* {workspaceRealization: record}, or NULL */
};
void place_realization_clear(struct place_realization *realization);

struct config_schema;

struct driver {
	enum driver_kind kind;
	const struct config_schema *config; /* what `normalize` goes by; NULL: any object */
	/* Stored form of a config: typed, defaulted, strict. `saving` refuses what may only be
	 * probed. */
	json_t *(*normalize)(struct driver_host *host, const json_t *config, bool saving,
			     struct error *err);
	int (*probe)(struct driver_host *host, const struct environment *environment,
		     struct probe *out, struct error *err);
	/* Provider name and unique ref acquire will use: written in the intent. Allocated. */
	int (*name)(struct driver_host *host, const struct place_request *request, char **provider,
		    char **provider_ref, struct error *err);
	bool (*reuses)(const struct environment *environment); /* config asks for reusable places */
	/* Nothing of its places outlives this machine, if their files are not kept; NULL: it may.
	 */
	bool (*fleeting)(const struct environment *environment);
	/* Its places can have a directory of this host as their workspace; NULL: they cannot. */
	bool (*mounts)(const struct environment *environment);
	/* As of a provider; NULL: it asks for nothing by its config. */
	void (*needs)(const json_t *config, struct place_needs *out);
	int (*acquire)(struct driver_host *host, const struct place_request *request,
		       struct place_grant *out, struct error *err);
	int (*resume)(struct driver_host *host, const struct place_request *request,
		      const struct place *place, struct place_grant *out,
		      struct error *err); /* as provider */
	int (*release)(struct driver_host *host, const struct place *place, const char *status,
		       struct error *err);
	int (*destroy)(struct driver_host *host, const struct place *place, struct error *err);
	/*
	 * Every ref the driver knows to exist for one provider; for reconcile. 1 listed, 0 this
	 * provider has no list. NULL: none of them has.
	 */
	int (*inventory)(struct driver_host *host, const char *provider,
			 struct provider_inventory *out, struct error *err);
	int (*realize)(struct driver_host *host, const struct place *place, const char *lease_id,
		       const struct place_workspace *workspace, struct place_realization *out,
		       struct error *err);
	/*
	 * Lets the place take commands and file calls for its present holder (exec.h): says where
	 * on this host it is and with which key its relay is spoken to. Makes nothing yet.
	 */
	int (*open)(struct driver_host *host, const struct place *place, struct error *err);
	int (*start)(struct driver_host *host, const struct place *place,
		     const struct exec_spec *spec, struct exec **exec, struct error *err);
	/* One command from its start to its end, where a place has no relay (PLACE_NO_RELAY). */
	int (*execute)(struct driver_host *host, const struct place *place,
		       const struct one_shot_call *call, struct one_shot_result *result,
		       struct error *err);
	int (*stop)(struct driver_host *host, const struct place *place, int64_t wait_ms,
		    struct error *err);
};

/* Key of a place's metadata, true when it takes commands by one-shot calls only. Written last, so
 * that no provider says it in words of its own. */
#define PLACE_NO_RELAY "noRelay"
/*
 * Values of an environment's env may be secrets: they stay on the environment, and the config that
 * is stored with a place has this key (true) instead of env. Commands get the values that the
 * environment has when they start.
 */
#define PLACE_ENV_ELSEWHERE "envOfEnvironment"
/* The config as it is stored; new reference. */
json_t *place_config_stored(const json_t *config);
/* Another: {path, how} of the directory of this host that is its workspace. */
#define PLACE_MOUNT "workspaceMount"

extern const struct driver DRIVER_LOCAL_HOST, DRIVER_SANDBOX_PROVIDER;
/* Config is validated and stored; using them is ERR_UNSUPPORTED_ENV until they can be reached. */
extern const struct driver DRIVER_SSH_CONFIG, DRIVER_PLUGIN_CONFIG;

/* What exec.h needs to know of a place, apart from where it is. ERR_INTERNAL when it has no key. */
int place_exec_fill(const struct place *place, struct exec_place *out, struct error *err);
int place_exec_open(struct driver_host *host, const struct place *place, const char *root,
		    const char *cwd, struct error *err);

struct drivers {
	struct driver_host *host;
	const struct driver *const *table; /* NULL-terminated; the last of a kind wins */
};
extern const struct driver *const DRIVERS_DEFAULT[];

/* Driver local on a server that was started without it: ERR_FORBIDDEN, always in these words. */
int refuse_host(struct error *err);

/* Those whose places can be leased, as a set: bit n is driver n. */
unsigned drivers_usable(const struct drivers *drivers);

/* `Environment driver "<key>" is not registered in the environment runtime yet.` */
const struct driver *drivers_require(const struct drivers *drivers, enum driver_kind kind,
				     struct error *err);
/*
 * The wrappers everybody calls: they pick the driver, own the fault points
 * `driver.<op>.before/after`, and refuse an operation the driver lacks with ERR_UNSUPPORTED_ENV
 * (`driver "<key>" does not support <operation>`).
 */
json_t *driver_normalize(const struct drivers *d, enum driver_kind kind, const json_t *config,
			 bool saving, struct error *err);
int driver_probe(const struct drivers *d, const struct environment *environment, struct probe *out,
		 struct error *err);
int driver_name_place(const struct drivers *d, const struct place_request *request, char **provider,
		      char **provider_ref, struct error *err);
bool driver_reuses(const struct drivers *d, const struct environment *environment);
bool driver_is_fleeting(const struct drivers *d, const struct environment *environment);
/* ERR_UNPROCESSABLE when places of the environment cannot have a workspace of the host mounted. */
int driver_check_mount(const struct drivers *d, const struct environment *environment,
		       struct error *err);
/* What of this host its places have by that config. */
struct place_needs driver_needs(const struct drivers *d, enum driver_kind kind,
				const json_t *config);
int driver_acquire(const struct drivers *d, const struct place_request *request,
		   struct place_grant *out, struct error *err);
int driver_resume(const struct drivers *d, const struct place_request *request,
		  const struct place *place, struct place_grant *out, struct error *err);
int driver_release(const struct drivers *d, const struct place *place, const char *status,
		   struct error *err);
int driver_destroy(const struct drivers *d, const struct place *place, struct error *err);
int driver_inventory(const struct drivers *d, enum driver_kind kind, const char *provider,
		     struct provider_inventory *out,
		     struct error *err); /* 1: listed, 0: not discoverable */
int driver_realize(const struct drivers *d, const struct place *place, const char *lease_id,
		   const struct place_workspace *workspace, struct place_realization *out,
		   struct error *err);
int driver_open(const struct drivers *d, const struct place *place, struct error *err);
int driver_start(const struct drivers *d, const struct place *place, const struct exec_spec *spec,
		 struct exec **exec, struct error *err);
int driver_execute(const struct drivers *d, const struct place *place,
		   const struct one_shot_call *call, struct one_shot_result *result,
		   struct error *err);
int driver_stop(const struct drivers *d, const struct place *place, int64_t wait_ms,
		struct error *err);

/* The realization record of spec 01 E.5 from the request in workspace->request (or a synthetic
 * one). */
json_t *realization_record(const struct place *place, const char *lease_id,
			   const struct place_workspace *workspace,
			   const json_t *provider_metadata);
