/*
 * What the records share: who acts, which node writes, how lists are paged.
 *
 * A record room function named *_tx runs inside the caller's transaction; the others open their
 * own. Structs own their strings and JSON; every struct has a _clear that makes it empty again. An
 * `out` must be empty; it is filled on success only. Where something is made or changed it may be
 * NULL. Lists are ordered and end at 1000 entries.
 */
#pragma once

#include <stdint.h>
#include "base/clock.h"
#include "base/id.h"
#include "base/json.h"
#include "db/db.h"
#include "record/kinds.h"

/* How the one who asked is known. */
enum actor_kind {
	ACTOR_NOBODY, /* not at all, or the server itself */
	ACTOR_LOCAL,  /* a process of the server's own user, or of root */
	ACTOR_USER,   /* a person with a token */
	ACTOR_AGENT,  /* an agent with a token */
	ACTOR_RUN,    /* an agent with the token of one of its runs */
};

/* Who asked. Local trust gives type "user", id "local"; the server's own acts are "system". */
struct actor {
	char type[16];
	char id[64];              /* of a user or an agent: its id */
	char agent_id[ID_SIZE];   /* "" unless an agent */
	char run_id[ID_SIZE];     /* "" unless on behalf of a run */
	char company_id[ID_SIZE]; /* of an agent, which belongs to one; else "" */
	enum actor_kind kind;
	bool is_admin; /* everything, everywhere: local trust and instance admins */
	/*
	 * Of an agent: its own, whatever its membership says (auth/member.h). Of a person whose
	 * token is limited: all that it is for.
	 */
	unsigned permissions;
	bool is_limited;
	bool by_token; /* came with one, or acts for a run whose starter did */
	bool no_local; /* places of driver local are not for them: they run as the server's user */
};
static inline bool actor_is_agent(const struct actor *actor)
{
	return actor->kind == ACTOR_AGENT || actor->kind == ACTOR_RUN;
}
/* The server's own user, root, and the server itself: what this host has is theirs already. */
static inline bool actor_is_trusted(const struct actor *actor)
{
	return !actor->by_token && (actor->kind == ACTOR_LOCAL || actor->kind == ACTOR_NOBODY);
}
extern const struct actor ACTOR_SYSTEM;

/* This server process: written to every intent, place, lease and run it makes. */
struct node {
	char id[ID_SIZE];
	int64_t boot_epoch;    /* rises at every start of the server on this node */
	char boot_id[ID_SIZE]; /* of the machine */
};
/*
 * Reads or makes the node's identity in the data directory, raises its epoch and registers it.
 * node_beat refreshes the heartbeat; a node whose beat is older than NODE_DEAD_MS is dead and its
 * work may be taken over.
 */
#define NODE_DEAD_MS 60000
/* node_beat says ERR_CONFLICT when a later server has taken over this node's identity. */
int node_register(struct db *db, struct clock *clock, int data_dirfd, struct node *node,
		  struct error *err);
int node_beat(struct db *db, struct clock *clock, const struct node *node, struct error *err);

/* How something is written, and on whose behalf. */
struct writer {
	struct db *db;
	struct clock *clock;
	const struct actor *actor;
	const char *id;   /* of what is made; NULL: a fresh one */
	bool refuse_fake; /* environments of the fake provider cannot be chosen */
	unsigned usable;  /* drivers whose places this server can lease (bit n); 0: not asked */
	const json_t *sandbox; /* config of the Sandbox a new company gets; NULL: it gets none */
	bool no_variables; /* without environments:manage: variables of records stay as they are */
	/* Where an agent with an adapter can run; NULL: anywhere. Adapters are known further up. */
	bool (*adapter_allows)(const char *adapter_type, enum driver_kind driver);
};
#define WRITER(db_, clock_, actor_)                                                                \
	(&(struct writer){ .db = (db_), .clock = (clock_), .actor = (actor_) })

/*
 * A list of a company's records, oldest first, and what narrows it: NULL for any, and each list
 * knows only its own. `limit` rows follow the cursor; `next` is then the cursor of the rest, or "".
 */
#define RECORD_LIST_MAX 1000
#define LIST_CURSOR_SIZE (ID_SIZE + 24)
struct list_query {
	const char *company_id;
	const char *status, *priority, *mode, *adapter_type;
	const char *project_id, *assignee_id, *issue_id;
	bool reusable; /* workspaces that runs may go on working in */
	int64_t limit; /* 1..RECORD_LIST_MAX; 0: RECORD_LIST_MAX */
	const char *cursor;
	char next[LIST_CURSOR_SIZE];
};

/*
 * Bodies have passed the record's table of fields: *_FIELDS when it is made, *_PATCH_FIELDS when it
 * is changed. A change touches what the body names; null takes a value away. References must be of
 * the same company and environments must be such that can be chosen there (selection.h), else
 * ERR_UNPROCESSABLE. What unfinished runs or open leases need cannot be deleted (ERR_CONFLICT with
 * details). All write activity in the same transaction.
 */
struct company {
	char id[ID_SIZE];
	char *name, *issue_prefix;
	enum company_status status;
	int64_t issue_counter;
	int64_t created_at, updated_at;
};
void company_clear(struct company *company);
extern const struct column COMPANY_COLUMNS[]; /* db/column.h */
json_t *company_json(const struct company *company);
extern const struct field COMPANY_FIELDS[], COMPANY_PATCH_FIELDS[];
/*
 * Also makes the company's Local environment, in the same transaction. A taken name or prefix is
 * ERR_CONFLICT. The prefix of its issues: NULL derives one from the name.
 */
int company_create(const struct writer *writer, const char *name, const char *issue_prefix,
		   struct company *out, struct error *err);
int company_update(const struct writer *writer, const char *id, const json_t *body,
		   struct company *out, struct error *err);
int company_get(struct db *db, const char *id, struct company *out,
		struct error *err); /* ERR_NOT_FOUND */
int company_get_by_name(struct db *db, const char *name, struct company *out, struct error *err);
/* Those in which the user is an active member. */
json_t *company_list_of_user(struct db *db, const char *user_id, struct error *err);
json_t *company_list(struct db *db, struct error *err);                  /* array; NULL on error */
int company_exists_tx(struct tx *tx, const char *id, struct error *err); /* 0 or ERR_NOT_FOUND */
/* That new work may be begun there: ERR_CONFLICT while it is paused or archived. */
int company_works_tx(struct tx *tx, const char *id, struct error *err);

struct agent {
	char id[ID_SIZE], company_id[ID_SIZE], default_environment_id[ID_SIZE];
	char *name, *adapter_type, *role, *title;
	enum agent_status status;
	json_t *adapter_config, *runtime_config, *permissions;
	json_t *trust; /* who wrote what of it (record/trust.h); NULL: not known */
	int64_t created_at, updated_at;
};
void agent_clear(struct agent *agent);
extern const struct column AGENT_COLUMNS[]; /* db/column.h */
json_t *agent_json(const struct agent *agent);
extern const struct field AGENT_FIELDS[], AGENT_PATCH_FIELDS[];
int agent_create(const struct writer *writer, const char *company_id, const json_t *body,
		 struct agent *out, struct error *err);
int agent_update(const struct writer *writer, const char *id, const json_t *body, struct agent *out,
		 struct error *err);
int agent_delete(const struct writer *writer, const char *id, struct agent *removed,
		 struct error *err);
int agent_get(struct db *db, const char *id, struct agent *out, struct error *err);
int agent_get_tx(struct tx *tx, const char *id, struct agent *out, struct error *err);
/* That it may begin a run: ERR_CONFLICT while it is paused, terminated or waits for approval. */
int agent_works_tx(struct tx *tx, const char *id, struct error *err);
json_t *agent_list(struct db *db, struct list_query *query, struct error *err);
/* spec 01 E.7 step 3: one row per agent however many first runs meet. */
int agent_ensure_state(struct db *db, struct clock *clock, const struct agent *agent,
		       struct error *err);
int agent_note_run(struct db *db, struct clock *clock, const char *agent_id, const char *run_id,
		   const char *run_status, const char *last_error, struct error *err);

struct project {
	char id[ID_SIZE], company_id[ID_SIZE];
	char *name;
	enum project_status status;
	json_t *env;                        /* {NAME: value} for its runs */
	json_t *execution_workspace_policy; /* object or NULL */
	json_t *trust;                      /* as an agent's */
	int64_t created_at, updated_at;
};
void project_clear(struct project *project);
extern const struct column PROJECT_COLUMNS[]; /* db/column.h */
json_t *project_json(const struct project *project);
extern const struct field PROJECT_FIELDS[], PROJECT_PATCH_FIELDS[];
int project_create(const struct writer *writer, const char *company_id, const json_t *body,
		   struct project *out, struct error *err);
int project_update(const struct writer *writer, const char *id, const json_t *body,
		   struct project *out, struct error *err);
/* Its workspaces go with it, so they have to be closed before. */
int project_delete(const struct writer *writer, const char *id, struct project *removed,
		   struct error *err);
int project_get(struct db *db, const char *id, struct project *out, struct error *err);
int project_get_tx(struct tx *tx, const char *id, struct project *out, struct error *err);
json_t *project_list(struct db *db, struct list_query *query, struct error *err);

struct issue {
	char id[ID_SIZE], company_id[ID_SIZE], project_id[ID_SIZE], assignee_agent_id[ID_SIZE];
	char execution_workspace_id[ID_SIZE];
	char execution_run_id[ID_SIZE]; /* the run that works on it now; "" when none does */
	char checkout_run_id[ID_SIZE];  /* the run that has taken it for itself; "" for none */
	char *title, *description, *execution_workspace_preference;
	char *identifier; /* "ACM-7" */
	enum issue_status status;
	enum issue_priority priority;
	int64_t number;
	json_t *execution_workspace_settings; /* object or NULL */
	json_t *trust;                        /* as an agent's */
	int64_t created_at, updated_at;
};
void issue_clear(struct issue *issue);
extern const struct column ISSUE_COLUMNS[]; /* db/column.h */
json_t *issue_json(const struct issue *issue);
extern const struct field ISSUE_FIELDS[], ISSUE_PATCH_FIELDS[];
/*
 * An issue that is made with an assignee, and for which neither it nor its project chooses an
 * environment, takes over the assignee's; reassigning replaces what was taken over, and only that
 * (spec 01 E.8). New settings of an issue that reuses a workspace go to that workspace's config.
 */
int issue_create(const struct writer *writer, const char *company_id, const json_t *body,
		 struct issue *out, struct error *err);
int issue_update(const struct writer *writer, const char *id, const json_t *body, struct issue *out,
		 struct error *err);
int issue_delete(const struct writer *writer, const char *id, struct issue *removed,
		 struct error *err);
int issue_get(struct db *db, const char *id, struct issue *out, struct error *err);
int issue_get_tx(struct tx *tx, const char *id, struct issue *out, struct error *err);
json_t *issue_list(struct db *db, struct list_query *query, struct error *err);
/*
 * A run begins, or ends, to work on its issue, if it has one; an end changes nothing when another
 * run has begun since.
 */
int issue_begin_run_tx(struct tx *tx, int64_t now, const char *run_id, struct error *err);
int issue_end_run_tx(struct tx *tx, int64_t now, const char *run_id, struct error *err);
/* A workspace was made for an issue, or is closed: the link is the writer's, as if by a PATCH. */
int issue_link_workspace_tx(struct tx *tx, const struct writer *writer, int64_t now, const char *id,
			    const char *workspace_id, struct error *err);
int issue_unlink_workspace_tx(struct tx *tx, const struct actor *actor, int64_t now,
			      const char *workspace_id, struct error *err);
/* Takes an issue for a run; ERR_CONFLICT while another, unfinished one has it. "" gives it back. */
int issue_check_out(const struct writer *writer, const char *id, const char *run_id,
		    struct issue *out, struct error *err);
