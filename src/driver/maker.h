/*
 * A maker makes, opens and ends places. One table of functions per maker: local, native, fake. The
 * wire's words `driver` and `provider` are how a config names one: driver `sandbox` by its
 * provider, every other driver by itself.
 *
 * Calls may block until their deadline; none holds a lock or a transaction; none writes rows: only
 * lease/ does. Names are deterministic: a ref derives from the request alone, so that an intent
 * written before `acquire` can be compared with `inventory` after a crash.
 *
 * A new maker is one file that ends with MAKER_REGISTER. Makers that are made at run time are added
 * with makers_add; what such a one needs of its own it keeps around its struct maker.
 *
 * Only the maker_* functions below call a maker: they find it, own the fault points
 * `driver.<op>.before/after`, make runtime config of stored config, and refuse what it lacks.
 */
#pragma once

#include "driver/host.h"
#include "place/exec.h"
#include "record/allow.h"
#include "record/environment.h"
#include "record/kinds.h"
#include "record/place.h"

/* What the rest of Berth asks about a maker instead of its name. */
struct traits {
	bool is_host;          /* its places are this host itself: no walls, the server's user */
	bool takes_relay;      /* a relay can be put into its places; a place may be an exception */
	bool mounts_workspace; /* its places can have a directory of this host as their workspace */
	bool below_directory;  /* paths of file calls are below the place's remoteCwd */
	bool lists;            /* its inventory is complete */
	bool names_ahead;      /* destroying by the announced name is safe, made or not */
	bool fleeting;         /* nothing outlives this machine unless files are to be kept */
	bool reusable;         /* its places can be kept for a later lease */
	bool for_tests;        /* offered only by a server that allows the fake provider */
	enum fencing fencing;
};

/* A config as makers get it: values instead of names of secrets. Never stored, never shown. */
struct runtime_config {
	json_t *json; /* owned */
};
void runtime_config_clear(struct runtime_config *config);

/* A place as a maker sees it. Everything is borrowed; NULL or 0 is not known yet. */
struct place_view {
	const char *id;  /* Berth's */
	const char *ref; /* the maker's */
	struct runtime_config config;
	const json_t *metadata;
	const char *company_id, *environment_id;
	/* Of the request that it is, or was, made for. */
	const char *lease_id, *run_id, *issue_id, *agent_id, *workspace_id;
	/* Of the holding. */
	int64_t generation;
	const uint8_t *key; /* PLACE_KEY_SIZE bytes */
	bool keep_files;    /* after the end of its processes, until it is released or destroyed */
	const struct workspace_mount *workspace; /* NULL: none is to be mounted */
	const struct place_bounds *bounds; /* NULL: it can have no path of the host by its config */
};

struct probe {
	bool ok;
	enum driver_kind driver;
	char *summary;
	json_t *details; /* object or NULL */
};
void probe_clear(struct probe *probe);
json_t *probe_json(const struct probe *probe);

/* What a maker says of a place that it made or woke. */
struct made_place {
	char *ref;
	json_t *metadata;   /* object */
	int64_t expires_at; /* 0: the maker sets no end */
	bool no_relay;      /* this place takes commands by `execute` only */
};
void made_place_clear(struct made_place *made);

struct maker_inventory {
	char **refs; /* NULL-terminated */
};
void maker_inventory_clear(struct maker_inventory *inventory);

/* Where the workspace of a place is (spec 01 E.5). */
struct place_workspace {
	const char *local_path, *remote_path, *mode; /* NULL for none */
	const json_t *request;                       /* workspaceRealizationRequest */
};
struct place_realization {
	char *cwd;
	json_t *said;     /* what the maker said besides, or NULL */
	json_t *metadata; /* {workspaceRealization: record} */
};
void place_realization_clear(struct place_realization *realization);

struct config_schema;

/* Deadlines are milliseconds that the call may take; 0: the maker's own default. */
struct maker {
	const char *key;          /* "local", "native", ...; of driver sandbox: its provider */
	const char *display_name; /* for people */
	enum driver_kind driver;
	struct traits traits;
	const struct config_schema *config; /* what `normalize` goes by; NULL: any object */
	struct maker_host *host;            /* set by makers_add */

	/* What of this host a place of that config has; NULL: nothing. `out` is empty. */
	void (*needs)(const json_t *config, struct place_needs *out);
	/* Stored form of a config: typed, defaulted, strict. `saving` refuses what may only be
	 * probed. New reference. */
	json_t *(*normalize)(const struct maker *self, const json_t *config, bool saving,
			     struct error *err);
	int (*probe)(const struct maker *self, const struct place_view *wanted, int64_t deadline_ms,
		     struct probe *out, struct error *err);
	/* The ref that acquire will use; known before anything is made. Allocated. */
	char *(*name)(const struct maker *self, const struct place_view *wanted);
	int (*acquire)(const struct maker *self, const struct place_view *wanted,
		       int64_t deadline_ms, struct made_place *out, struct error *err);
	/* 1 resumed, 0 cannot be resumed (make a new one), -1 error (same, with a reason). NULL:
	 * its places are never used again. */
	int (*resume)(const struct maker *self, const struct place_view *place, int64_t deadline_ms,
		      struct made_place *out, struct error *err);
	/* Where commands find the workspace: fills cwd and what it has to say. NULL: remoteCwd. */
	int (*realize)(const struct maker *self, const struct place_view *place,
		       const struct place_workspace *workspace, int64_t deadline_ms,
		       struct place_realization *out, struct error *err);
	/* End of holding: nothing runs there any more; files of a reusable place stay. */
	int (*release)(const struct maker *self, const struct place_view *place, const char *status,
		       int64_t deadline_ms, struct error *err);
	int (*destroy)(const struct maker *self, const struct place_view *place,
		       int64_t deadline_ms, struct error *err);
	/* Every ref it knows to exist; with the trait `lists`. */
	int (*inventory)(const struct maker *self, int64_t deadline_ms, struct maker_inventory *out,
			 struct error *err);
	/* Config that a place without one is ended with; new reference. NULL: cannot. */
	json_t *(*config_from_metadata)(const json_t *metadata);
	/*
	 * Of a place that is opened, after acquire or a restart: what its relay is made from and what
	 * holds for its commands. Ids, key, absence and dialer are filled in. Makes nothing yet.
	 */
	int (*describe)(const struct maker *self, const struct place_view *place,
			struct exec_place *out, struct error *err);
	/*
	 * The dialer that connects to the place's relay and ends the place (link/dialer.h), ready to
	 * be asked: a bridge that is down logs in again, which is why each question to a dialer begins
	 * with this one. Borrowed; it lives until the places are freed. NULL: the keeper of this host.
	 */
	int (*dialer)(const struct maker *self, const struct place_view *place, int64_t deadline_ms,
		      struct dialer **out, struct error *err);
	/* Before each command in a place with a relay; NULL: nothing. */
	int (*prepare)(const struct maker *self, const struct place_view *place,
		       const struct exec_spec *spec, struct error *err);
	/* One command from its start to its end (place/shell/shell.h), in places without a relay.
	 * NULL: all places can have one. */
	int (*execute)(const struct maker *self, const struct place_view *place,
		       const struct one_shot_call *call, struct one_shot_result *result,
		       struct error *err);
};

#define MAKER_REGISTER(ident)                                                                      \
	static const struct maker *const ident##_maker                                             \
		__attribute__((used, section("berth_makers"))) = &(ident)

/* The makers that a server, or a test, has. The last that a name fits wins. */
struct makers {
	struct maker_host *host;
	struct maker **items;
	size_t count;
};
void makers_init(struct makers *makers, struct maker_host *host); /* with all that registered */
void makers_add(struct makers *makers, struct maker *maker);      /* owned */
void makers_clear(struct makers *makers);
/* NULL: none. The provider is looked at for driver sandbox only, and may be NULL. */
const struct maker *makers_find(const struct makers *makers, enum driver_kind driver,
				const char *provider);
/*
 * `Environment driver "<key>" is not registered in the environment runtime yet.`
 * `Sandbox provider "<key>" is not registered as a built-in provider.`
 */
const struct maker *makers_require(const struct makers *makers, enum driver_kind driver,
				   const char *provider, struct error *err);
/* Of a maker that is not there: none of all. */
struct traits makers_traits(const struct makers *makers, enum driver_kind driver,
			    const char *provider);
struct traits environment_traits(const struct makers *makers,
				 const struct environment *environment);
/* Drivers whose places can be leased, as a set: bit n is driver n. */
unsigned makers_usable(const struct makers *makers);
/* What a config of that driver may hold, whoever makes its places; NULL: any object. */
const struct config_schema *driver_config_schema(const struct makers *makers,
						 enum driver_kind driver);
/* Driver local on a server that was started without it: ERR_FORBIDDEN, always in these words. */
int refuse_host(struct error *err);

/*
 * What lease/ asks for. The config is the stored one: makers get the runtime config that is made of
 * it.
 */
struct place_request {
	const struct environment *environment;
	struct stored_config config; /* nothing in it: the environment's */
	const char *lease_id, *run_id, *issue_id, *agent_id, *workspace_id; /* NULL for none */
	const char *workspace_mode;                                         /* NULL for none */
	const struct workspace_mount *workspace; /* NULL: none is to be mounted */
	const struct place_bounds *bounds;
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

/* Key of a place's metadata, true when it takes commands by one-shot calls only. Written last, so
 * that no maker says it in words of its own. */
#define PLACE_NO_RELAY "noRelay"
/* Another: {path, how} of the directory of this host that is its workspace. */
#define PLACE_MOUNT "workspaceMount"
/*
 * Values of an environment's env may be secrets: they stay on the environment, and the config that
 * is stored with a place has this key (true) instead of env. Commands get the values that the
 * environment has when they start.
 */
#define PLACE_ENV_ELSEWHERE "envOfEnvironment"
/* The config as it is stored; new reference. */
json_t *place_config_stored(struct stored_config config);

/* How long a call may take by that config. */
int64_t maker_deadline_ms(struct stored_config config);

json_t *maker_normalize(const struct makers *makers, enum driver_kind driver, const json_t *config,
			bool saving, struct error *err);
int maker_probe(const struct makers *makers, const struct environment *environment,
		struct probe *out, struct error *err);
int maker_name_place(const struct makers *makers, const struct place_request *request,
		     char **provider, char **provider_ref, struct error *err);
/* Whether the config asks for places that are used again. */
bool maker_reuses(const struct makers *makers, const struct environment *environment);
/* ERR_UNPROCESSABLE when places of the environment cannot have a workspace of the host mounted. */
int maker_check_mount(const struct makers *makers, const struct environment *environment,
		      struct error *err);
/* What of this host its places have by that config. */
struct place_needs maker_needs(const struct makers *makers, enum driver_kind driver,
			       const json_t *config);
int maker_acquire(const struct makers *makers, const struct place_request *request,
		  struct place_grant *out, struct error *err);
int maker_resume(const struct makers *makers, const struct place_request *request,
		 const struct place *place, struct place_grant *out, struct error *err);
int maker_release(const struct makers *makers, const struct place *place, const char *status,
		  struct error *err);
int maker_destroy(const struct makers *makers, const struct place *place, struct error *err);
int maker_inventory(const struct makers *makers, enum driver_kind driver, const char *provider,
		    struct maker_inventory *out, struct error *err); /* 1: listed, 0: has no list */
int maker_realize(const struct makers *makers, const struct place *place, const char *lease_id,
		  const struct place_workspace *workspace, struct place_realization *out,
		  struct error *err);
/* Lets the place take commands and file calls for its present holder (place/exec.h). */
int maker_open(const struct makers *makers, const struct place *place, struct error *err);
/* Starts a command in an open place. One whose start is not answered is ended. */
int maker_start(const struct makers *makers, const struct place *place,
		const struct exec_spec *spec, struct exec **exec, struct error *err);
/* Ends every process of the place, at most wait_ms, also when its relay cannot be reached: the
 * place's dialer does it then. */
int maker_stop(const struct makers *makers, const struct place *place, int64_t wait_ms,
	       struct error *err);

/* grant.c: what a maker said becomes what is recorded of the place. Takes what is in `made`. */
void place_grant_fill(const struct maker *maker, const struct place_request *request,
		      struct made_place *made, struct place_grant *out);
/* The realization record of spec 01 E.5 from the request in workspace->request (or a synthetic
 * one). */
json_t *realization_record(const struct place *place, const char *lease_id,
			   const struct place_workspace *workspace,
			   const json_t *provider_metadata);
