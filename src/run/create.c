#include "run/service.h"

#include <string.h>

#include "base/text.h"
#include "record/trust.h"
#include "run/files.h"
#include "run/prompt.h"
#include "run/row.h"
#include "run/run_events.h"
#include "run/workspace_request.h"

static const char *const STDIN_ENCODINGS[] = { "utf8", "base64", NULL };

static const struct field TTY_FIELDS[] = {
	{ "rows", FIELD_INT, 0, 1, 65535, .summary = "24 unless given" },
	{ "cols", FIELD_INT, 0, 1, 65535, .summary = "80 unless given" },
	{ "term", FIELD_STRING, 0, 1, 64, .summary = "TERM of the command" },
	{ 0 },
};
const struct field RUN_FIELDS[] = {
	{ "command", FIELD_STRING_ARRAY, 0, 1, 4096,
	  .summary = "argv; never a shell string. Either this or a prompt" },
	{ "prompt", FIELD_STRING, 0, 1, 1 << 20,
	  .summary = "what a tool is to do; it gets it on its standard input" },
	{ "adapterType", FIELD_STRING, FIELD_NONBLANK, 1, 100,
	  .summary = "which tool gets the prompt; the agent's own unless given" },
	{ "adapterConfig", FIELD_OBJECT, 0,
	  .summary = "settings of the tool, laid over the agent's" },
	{ "environmentId", FIELD_UUID, FIELD_NULLABLE,
	  .summary = "where to run; null means the company's default environment, absent lets the "
		     "workspace, issue, project and agent decide" },
	{ "environment", FIELD_STRING, FIELD_NULLABLE, 1, 200,
	  .summary = "the same by name or id, instead of environmentId; null means the company's "
		     "default environment, made if it was deleted" },
	{ "agentId", FIELD_UUID, FIELD_NULLABLE, .summary = "on behalf of which agent" },
	{ "projectId", FIELD_UUID, FIELD_NULLABLE, .summary = "what the run belongs to" },
	{ "issueId", FIELD_UUID, FIELD_NULLABLE, .summary = "what the run works on" },
	{ "executionWorkspaceId", FIELD_UUID, FIELD_NULLABLE, .summary = "workspace to work in" },
	{ "cwd", FIELD_STRING, FIELD_NULLABLE, 1, 4096,
	  .summary = "absolute directory in the place" },
	{ "env", FIELD_STRING_MAP, 0, .summary = "added to the minimal environment" },
	{ "stdin", FIELD_STRING, FIELD_NULLABLE, 0, 2 << 20,
	  .summary = "the whole of standard input" },
	{ "stdinEncoding", FIELD_STRING, 0, .one_of = STDIN_ENCODINGS,
	  .summary = "utf8 (default) or base64" },
	{ "stdinStream", FIELD_BOOL, 0,
	  .summary = "standard input goes on with POST /api/execs/<run id>/stdin until its end; "
		     "such a run cannot be retried" },
	{ "tty", FIELD_OBJECT, FIELD_NULLABLE, .fields = TTY_FIELDS,
	  .summary = "a terminal instead of pipes; it is at /api/execs/<run id>/terminal" },
	{ "workspace", FIELD_OBJECT, FIELD_NULLABLE, .fields = WORKSPACE_WISH_FIELDS,
	  .summary = "files that go into the place, and whose changes come back" },
	{ "workspaceIfSandbox", FIELD_BOOL, 0,
	  .summary = "leaves workspace out where the named environment is no sandbox that takes "
		     "files; cwd then counts on this host only" },
	{ "leasePolicy", FIELD_STRING, 0, .one_of = lease_policy_names,
	  .summary = "what becomes of the place afterwards; the environment's own unless given" },
	{ "retainSeconds", FIELD_INT, 0, 1, 365LL * 86400,
	  .summary = "how long the place of a failed run is kept under retain_on_failure (a day)" },
	{ "timeoutMs", FIELD_INT, FIELD_NULLABLE, 1, 30LL * 86400 * 1000,
	  .summary = "the whole process tree ends when it has run this long" },
	{ 0 },
};

SQL(RUN_REF_AGENT, "SELECT company_id FROM agents WHERE id = $1");
SQL(RUN_REF_PROJECT, "SELECT company_id FROM projects WHERE id = $1");
SQL(RUN_REF_ISSUE, "SELECT company_id FROM issues WHERE id = $1");
SQL(RUN_REF_WORKSPACE, "SELECT company_id FROM execution_workspaces WHERE id = $1");
SQL(RUN_REF_ENVIRONMENT, "SELECT company_id FROM environments WHERE id = $1");

/* Rows are looked at up to the limit and no further, however long the queue is. */
SQL(RUN_COUNT_QUEUED, "SELECT COUNT(*) FROM (SELECT id FROM runs WHERE company_id = $1"
		      " AND status = 'queued' LIMIT CAST($2 AS BIGINT)) AS waiting");

static int check_queue(struct tx *tx, const struct runs *runs, const char *company_id,
		       struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };
	int64_t max = runs->quota.queued;

	if (max <= 0)
		return 0;
	if (tx_query(tx, &c, &RUN_COUNT_QUEUED, err, B_TEXT(company_id), B_INT(max)) < 0 ||
	    cursor_next(&c, err) < 0)
		return -1;
	if (col_int(&c, 0) < max)
		return 0;
	return error_set(
		err, ERR_QUEUE_FULL,
		"%lld runs of this company are waiting, which is as many as may; try again "
		"when some have started",
		(long long)max);
}

struct creation {
	struct runs *runs;
	const struct actor *actor;
	const char *company_id;
	const json_t *body;
	struct run *run; /* the row to insert, then as it is stored */
};

/* A foreign id and an unknown one are told in the same words: existence does not leak. */
static int check_reference(struct tx *tx, const struct creation *c, const char *key,
			   const struct sql *sql, struct error *err)
{
	_cleanup_cursor_ struct cursor cursor = { 0 };
	const char *id = json_str(c->body, key);
	int found;

	if (!id)
		return 0;
	if (tx_query(tx, &cursor, sql, err, B_TEXT(id)) < 0)
		return -1;
	found = cursor_next(&cursor, err);
	if (found < 0)
		return -1;
	if (found == 0 || !streq(col_text(&cursor, 0), c->company_id))
		return error_set(err, ERR_UNPROCESSABLE, "%s \"%s\" was not found in this company",
				 key, id);
	return 0;
}

/* Said at once where the request itself names the place; else when the run is resolved. */
static int check_local(struct tx *tx, const struct creation *c, struct error *err)
{
	_cleanup_environment_ struct environment environment = { 0 };
	const char *id = json_str(c->body, "environmentId");

	if (!id || !c->actor->no_local)
		return 0;
	if (environment_get_tx(tx, id, &environment, err) < 0)
		return -1;
	return environment.driver == DRIVER_LOCAL ? refuse_local(err) : 0;
}

enum trust run_starter(const struct run *run)
{
	const json_t *request = json_object_at(run->context, "request");
	const char *word = json_str(request, "trust");

	if (word)
		return trust_read(word);
	/* Of a server that knew only whether the starter might use driver local. */
	return json_bool(request, "noLocal", false) ? TRUST_TOKEN : TRUST_LOCAL;
}

static int insert_run(struct tx *tx, void *arg, struct error *err)
{
	struct creation *c = arg;
	const json_t *b = c->body;
	const struct activity activity = { .company_id = c->company_id,
					   .actor = c->actor,
					   .action = "run.created",
					   .entity_type = "run",
					   .entity_id = c->run->id,
					   .agent_id = json_str(b, "agentId") };
	_cleanup_run_ struct run stored = { 0 };
	int64_t now = c->run->created_at;

	if (company_works_tx(tx, c->company_id, err) < 0 ||
	    check_queue(tx, c->runs, c->company_id, err) < 0 ||
	    check_reference(tx, c, "agentId", &RUN_REF_AGENT, err) < 0 ||
	    (json_str(b, "agentId") && agent_works_tx(tx, json_str(b, "agentId"), err) < 0) ||
	    check_reference(tx, c, "projectId", &RUN_REF_PROJECT, err) < 0 ||
	    check_reference(tx, c, "issueId", &RUN_REF_ISSUE, err) < 0 ||
	    check_reference(tx, c, "executionWorkspaceId", &RUN_REF_WORKSPACE, err) < 0 ||
	    check_reference(tx, c, "environmentId", &RUN_REF_ENVIRONMENT, err) < 0 ||
	    check_local(tx, c, err) < 0)
		return -1;
	if (run_insert_tx(tx, c->run, err) < 0 || activity_write_tx(tx, now, &activity, err) < 0 ||
	    run_publish_queued_tx(tx, now, c->run->id, err) < 0 ||
	    run_load_tx(tx, c->run->id, &stored, err) < 0)
		return -1;
	run_clear(c->run);
	*c->run = stored;
	stored = (struct run){ 0 };
	return 0;
}

/* What the table of fields cannot say. */
static int check_body(const json_t *body, struct error *err)
{
	const char *cwd = json_str(body, "cwd"), *input = json_str(body, "stdin");
	const char *program = json_string_value(json_array_get(json_array_at(body, "command"), 0));

	if (str_blank(program))
		return error_set(err, ERR_VALIDATION,
				 "command[0] is empty: name the program to run");
	if (cwd && cwd[0] != '/')
		return error_set(err, ERR_VALIDATION, "cwd must be an absolute path");
	if (json_check_env(json_object_at(body, "env"), err) < 0)
		return -1;
	if (input && str_equal(json_str(body, "stdinEncoding"), "base64")) {
		_cleanup_buf_ struct buf raw = { 0 };

		if (!base64_decode(&raw, input, strlen(input)))
			return error_set(err, ERR_VALIDATION, "stdin is not valid base64");
	}
	return 0;
}

/* The request's choice of environment is kept with its three states until the run is resolved. */
static json_t *initial_context(const json_t *body, const struct actor *actor)
{
	json_t *context = json_object(), *request = json_object();
	json_t *environment = json_object_get(body, "environmentId");

	if (environment)
		json_put_ref(request, "environmentId", environment);
	if (json_str(body, "adapterType"))
		json_put_str(request, "adapterType", json_str(body, "adapterType"));
	if (json_bool(body, "withoutEnd", false))
		json_put_bool(request, "withoutEnd", true);
	if (json_object_at(body, "tty"))
		json_put_ref(request, "tty", json_object_at(body, "tty"));
	if (json_str(body, "leasePolicy"))
		json_put_str(request, "leasePolicy", json_str(body, "leasePolicy"));
	if (json_int(body, "retainSeconds", 0) > 0)
		json_put_int(request, "retainSeconds", json_int(body, "retainSeconds", 0));
	if (json_bool(body, "stdinStream", false))
		json_put_bool(request, "stdinStream", true);
	json_put_str(request, "trust", trust_word(actor_trust(actor)));
	if (json_str(body, "commandTrust"))
		json_put_str(request, "commandTrust", json_str(body, "commandTrust"));
	if (!actor_is_trusted(actor))
		json_put_bool(request, "byToken", true);
	json_put_new(context, "request", request);
	return context;
}

static int find_environment(struct runs *runs, const char *company_id, const json_t *named,
			    struct environment *out, struct error *err)
{
	const char *name = json_string_value(named);
	_cleanup_error_ struct error why = { 0 };

	if (!name)
		return default_environment(runs->db, runs->clock, &runs->default_place, company_id,
					   out, err);
	if (environment_find(runs->db, company_id, name, out, &why) == 0)
		return 0;
	if (why.code == ERR_NOT_FOUND)
		return error_set(err, ERR_UNPROCESSABLE,
				 "environment \"%.200s\" was not found in this company", name);
	error_move(err, &why);
	return -1;
}

/* A wrong id is told by run_create, in the words it has for all of them. */
static void leave_out_workspace(const struct environment *environment, json_t *body)
{
	if (!id_is_set(environment->id) ||
	    (environment->driver == DRIVER_SANDBOX && files_take_relay(environment)))
		return;
	json_object_del(body, "workspace");
	/* A directory of the caller's means nothing in another place. */
	if (environment->driver != DRIVER_LOCAL)
		json_object_del(body, "cwd");
}

int run_resolve_names(struct runs *runs, const char *company_id, json_t *body, struct error *err)
{
	_cleanup_environment_ struct environment environment = { 0 };
	const json_t *named = json_object_get(body, "environment");
	const char *id = json_str(body, "environmentId");
	bool if_sandbox = json_bool(body, "workspaceIfSandbox", false);

	if (named && json_object_get(body, "environmentId"))
		return error_set(err, ERR_VALIDATION, "environment or environmentId, not both");
	if (if_sandbox && !named && !id)
		return error_set(err, ERR_VALIDATION,
				 "workspaceIfSandbox goes with environment or environmentId");
	if (named && find_environment(runs, company_id, named, &environment, err) < 0)
		return -1;
	if (named)
		json_put_str(body, "environmentId", environment.id);
	else if (if_sandbox)
		environment_find(runs->db, company_id, id, &environment, NULL);
	if (if_sandbox)
		leave_out_workspace(&environment, body);
	json_object_del(body, "environment");
	json_object_del(body, "workspaceIfSandbox");
	return 0;
}

/* The row of a request that has passed its checks. */
static void fill_run(struct runs *runs, const struct actor *actor, const char *run_id,
		     const char *company_id, const json_t *body, struct run *run)
{
	const json_t *env = json_object_at(body, "env");

	id_copy(run->id, run_id);
	id_copy(run->company_id, company_id);
	id_copy(run->agent_id, json_str(body, "agentId"));
	id_copy(run->project_id, json_str(body, "projectId"));
	id_copy(run->issue_id, json_str(body, "issueId"));
	id_copy(run->workspace_id, json_str(body, "executionWorkspaceId"));
	run->status = RUN_QUEUED;
	run->command = json_to_strv(json_object_get(body, "command"));
	run->cwd = xstrdup(json_str(body, "cwd"));
	run->env = env ? json_deep_copy(env) : json_object();
	run->stdin_text = xstrdup(json_str(body, "stdin"));
	run->stdin_encoding = xstrdup(json_str(body, "stdinEncoding"));
	run->secrets = json_object_size(env) > 0 || run->stdin_text ? SECRETS_KEPT : SECRETS_NONE;
	run->timeout_ms = json_int(body, "timeoutMs", 0);
	run->invocation_source = xstrdup("on_demand");
	run->context = initial_context(body, actor);
	id_copy(run->node_id, runs->node->id);
	run->boot_epoch = runs->node->boot_epoch;
	run->created_at = run->updated_at = clock_now(runs->clock);
}

/* The request names a command: one of its own, or what its prompt has come to. */
static int create_plain(struct runs *runs, const struct actor *actor, const char *run_id,
			const char *company_id, const json_t *body, struct run *run,
			struct error *err)
{
	struct creation c = { runs, actor, company_id, body, run };

	if (check_body(body, err) < 0 ||
	    workspace_wanted(runs, actor, company_id, json_str(body, "agentId") != NULL,
			     json_object_get(body, "workspace"), &run->workspace, err) < 0)
		return -1;
	fill_run(runs, actor, run_id, company_id, body, run);
	if (DB_WRITE(runs->db, "run.create", insert_run, &c, err) < 0) {
		run_clear(run);
		return -1;
	}
	runs_wake(runs);
	return 0;
}

int run_create(struct runs *runs, const struct actor *actor, const char *run_id,
	       const char *company_id, const json_t *body, struct run *run, struct error *err)
{
	_cleanup_json_ json_t *plain = NULL;
	char fresh[ID_SIZE];

	*run = (struct run){ 0 };
	id_new(fresh);
	if (!run_id)
		run_id = fresh;
	if (prompt_resolve(runs, company_id, run_id, body, &plain, err) < 0)
		return -1;
	return create_plain(runs, actor, run_id, company_id, plain, run, err);
}

struct room {
	const struct runs *runs;
	const char *company_id;
};

static int look_for_room(struct tx *tx, void *arg, struct error *err)
{
	const struct room *room = arg;

	return check_queue(tx, room->runs, room->company_id, err);
}

int run_retry(struct runs *runs, const struct actor *actor, const char *id, struct run *run,
	      struct error *err)
{
	_cleanup_run_ struct run old = { 0 };
	char new_id[ID_SIZE];

	*run = (struct run){ 0 };
	if (run_get(runs, id, &old, err) < 0)
		return -1;
	if (!run_status_is_final(old.status))
		return error_set(err, ERR_RUN_STATE,
				 "the run is %s: it can be retried once it has ended",
				 run_status_name(old.status));
	if (!run_can_repeat(&old, err))
		return -1;
	/* Whoever repeats a run gets no further by it than by one of their own. */
	if (old.workspace &&
	    (workspace_allowed(runs, actor, old.company_id, json_str(old.workspace, "path"),
			       json_str(old.workspace, "mode"), err) < 0 ||
	     workspace_trusted(actor, old.workspace, err) < 0))
		return -1;
	if (db_read(runs->db, look_for_room,
		    &(struct room){ .runs = runs, .company_id = old.company_id }, err) < 0 ||
	    run_queue_retry(runs->db, runs->clock, runs->node, actor, &old, 0, new_id, err) < 0)
		return -1;
	runs_wake(runs);
	return run_get(runs, new_id, run, err);
}
