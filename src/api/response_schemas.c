#include "api/response_schemas.h"
#include "auth/token.h"
#include "auth/user.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/text.h"
#include "record/environment.h"
#include "record/workspace.h"
#include "run/run.h"

#define TYPE_MAX 64
#define SHAPE(...) NULL, ((const struct shape_field[]){ __VA_ARGS__, { 0 } })
#define TIMES                                                                                      \
	{ "createdAt", "time", NULL, NULL },                                                       \
	{                                                                                          \
		"updatedAt", "time", NULL, NULL                                                    \
	}

const struct shape SHAPES[] = {
	{ "Company", "A tenant", COMPANY_COLUMNS, NULL },
	{ "Agent", "Who runs things", AGENT_COLUMNS, NULL },
	{ "Project", "What runs belong to", PROJECT_COLUMNS, NULL },
	{ "Issue", "What an agent works on", ISSUE_COLUMNS, NULL },
	{ "ExecutionWorkspace", "A directory that runs work in", WORKSPACE_COLUMNS, NULL },
	{ "EnvironmentUsage", "What removing an environment would meet",
	  SHAPE({ "environmentId", "uuid", NULL, NULL }, { "canDelete", "bool", NULL, NULL },
		{ "deleteBlockedReasons", "[string]", NULL, NULL },
		{ "activeLeases", "int", NULL, NULL }, { "retainedLeases", "int", NULL, NULL },
		{ "pendingCleanupLeases", "int", NULL, NULL }, { "livePlaces", "int", NULL, NULL },
		{ "openIntents", "int", NULL, NULL }, { "unfinishedRuns", "int", NULL, NULL },
		{ "selectedBy", "EnvironmentChoosers", NULL, NULL }) },
	{ "EnvironmentChoosers", "Who has chosen an environment, by kind",
	  SHAPE({ "agents", "Choosers", NULL, NULL }, { "issues", "Choosers", NULL, NULL },
		{ "projects", "Choosers", NULL, NULL },
		{ "executionWorkspaces", "Choosers", NULL, NULL }) },
	{ "Choosers", "How many, and the first of them",
	  SHAPE({ "count", "int", NULL, NULL }, { "first", "[Chooser]", NULL, NULL }) },
	{ "Chooser", "One record",
	  SHAPE({ "id", "uuid", NULL, NULL }, { "name", "string", NULL, NULL }) },
	{ "Capabilities", "What environments can be made of",
	  SHAPE({ "adapters", "[object]", "By adapter: drivers and providers it can use", NULL },
		{ "drivers", "map", "supported or unsupported, by driver", NULL },
		{ "driverConfigSchemas", "object", "JSON Schema of configs, by driver", NULL },
		{ "sandboxProviders", "object", "By provider, with the schema of its config",
		  NULL }) },
	{ "Environment", "A configured kind of place", ENVIRONMENT_COLUMNS, NULL },
	{ "Probe", "What was found when a place was tried",
	  SHAPE({ "ok", "bool", NULL, NULL }, { "driver", "string", NULL, driver_kind_names },
		{ "summary", "string", NULL, NULL }, { "details", "object?", NULL, NULL }) },
	{ "Lease", "One holding of one place",
	  SHAPE({ "id", "uuid", NULL, NULL }, { "companyId", "uuid", NULL, NULL },
		{ "environmentId", "uuid?", NULL, NULL },
		{ "executionWorkspaceId", "uuid?", NULL, NULL }, { "issueId", "uuid?", NULL, NULL },
		{ "heartbeatRunId", "uuid?", "The run that holds it", NULL },
		{ "agentId", "uuid?", NULL, NULL },
		{ "status", "string", NULL, lease_status_names },
		{ "leasePolicy", "string", NULL, lease_policy_names },
		{ "provider", "string?", NULL, NULL }, { "providerLeaseId", "string?", NULL, NULL },
		{ "generation", "int", "Send it back with what you do in the place", NULL },
		{ "acquiredAt", "time?", NULL, NULL }, { "lastUsedAt", "time?", NULL, NULL },
		{ "expiresAt", "time?", NULL, NULL }, { "releasedAt", "time?", NULL, NULL },
		{ "idleSeconds", "int?", NULL, NULL },
		{ "paused", "bool", "Its commands stand still, and it takes no new ones", NULL },
		{ "failureReason", "string?", NULL, NULL },
		{ "cleanupStatus", "string?", NULL, NULL },
		{ "cleanupError", "object?",
		  "Why its place is still queued: code lease_release_failed or "
		  "lease_cleanup_failed, message, attempts, nextAttemptAt",
		  NULL },
		{ "metadata", "object?", NULL, NULL }, { "placeId", "string?", NULL, NULL },
		{ "placeState", "string?", NULL, NULL },
		{ "fencing", "string?", "Who refuses a former holder", NULL }, TIMES) },
	{ "Run", "One execution of a command", RUN_COLUMNS, NULL },
	{ "RunWorkspace", "The files a run brings, and what became of them",
	  SHAPE({ "path", "string", "On the server's machine", NULL },
		{ "mode", "string", "As asked for, then as chosen", NULL },
		{ "collect", "string", "auto, careful or manual", NULL },
		{ "careful?", "bool", "What runs by itself is put beside its name", NULL },
		{ "show?", "[string]", "What it sees although it is hidden", NULL },
		{ "root", "string?", "Where in the place, as asked for", NULL },
		{ "allowLarge", "bool", NULL, NULL },
		{ "phase", "string?",
		  "prepared, staging, staged, fetching, fetched, applying, applied, dropped",
		  NULL },
		{ "placeRoot", "string?", "Where in the place", NULL },
		{ "staged", "object?", "What went in", NULL },
		{ "counts", "object?",
		  "What came back, in files: modified, added, deleted, conflicts... and "
		  "directories",
		  NULL },
		{ "held?", "[object]",
		  "What waits beside its name for a person, with the reason; at most 100", NULL },
		{ "runsByItself?", "[object]",
		  "What came back that programs run without being told to; at most 100", NULL },
		{ "git?", "object?", "What came of the repository", NULL },
		{ "worktree?", "string?", "Mode worktree: where it is checked out", NULL },
		{ "error", "RunWorkspaceError?", "Why it did not come home", NULL },
		{ "progress?", "WorkspaceProgress", "While files are on their way", NULL },
		{ "placeKeptUntil", "time?", "What it changed is still in its place", NULL }) },
	{ "RunWorkspaceError", "Why the work did not come home",
	  SHAPE({ "code", "string", NULL, NULL }, { "message", "string", NULL, NULL }) },
	{ "WorkspaceProgress", "How far files are that are on their way",
	  SHAPE({ "step", "string", "scan, stage, fetch, apply", NULL },
		{ "files", "int", NULL, NULL }, { "filesTotal", "int", "0: not known yet", NULL },
		{ "bytes", "int", NULL, NULL }, { "bytesTotal", "int", NULL, NULL }) },
	{ "Change", "One path that a run changed",
	  SHAPE({ "path", "string", "Beneath the workspace", NULL },
		{ "pathBase64?", "string", "Its bytes, when they are no UTF-8", NULL },
		{ "kind", "string", "added, modified, deleted, mode, type", NULL },
		{ "fate", "string",
		  "What became of it here: applied, same, conflict, kept_host, held, refused, "
		  "pending",
		  NULL },
		{ "type", "string?", "file, directory, symlink; null: gone", NULL },
		{ "size?", "int", NULL, NULL },
		{ "beside", "string?", "Where the run's version is, in a conflict or when held",
		  NULL },
		{ "besideBase64?", "string", NULL, NULL },
		{ "reason", "string?", "Why it was not simply done", NULL },
		{ "runBy?", "string", "What runs it without being told to", NULL }) },
	{ "Changes", "What a run changed in its workspace",
	  SHAPE({ "path", "string", "The workspace", NULL },
		{ "pathBase64?", "string", NULL, NULL },
		{ "runId", "uuid", "Or the lease's", NULL }, { "mode", "string", NULL, NULL },
		{ "phase", "string", NULL, NULL }, { "worktree", "string?", NULL, NULL },
		{ "worktreeBase64?", "string", NULL, NULL },
		{ "staged", "object?", "What went in", NULL },
		{ "fetched?", "object", "What came to the server", NULL },
		{ "counts", "object", "How many of which fate", NULL },
		{ "git", "object?", "What came of the repository", NULL },
		{ "held", "[object]",
		  "What waits beside its name for a person, with the reason; at most 100", NULL },
		{ "runsByItself", "[object]",
		  "What came back that programs run without being told to; at most 100", NULL },
		{ "changes", "[Change]", "In the order of their paths", NULL },
		{ "truncated", "bool", "There are more", NULL }) },
	{ "WorkspacePlan", "What a workspace would bring into a place",
	  SHAPE({ "path", "string", NULL, NULL }, { "mode", "string", NULL, NULL },
		{ "collect", "bool", NULL, NULL }, { "files", "int", NULL, NULL },
		{ "directories", "int", NULL, NULL }, { "bytes", "int", NULL, NULL },
		{ "skippedCount", "int", "Files that cannot go along", NULL },
		{ "skipped", "[object]", "Some of them, with the reason", NULL },
		{ "hiddenCount", "int", "Paths that the run would not see", NULL },
		{ "hidden", "[object]", "At most 1,000 of them, each with what hides it", NULL }) },
	{ "RunPage", "A page of runs",
	  SHAPE({ "items", "[Run]", NULL, NULL },
		{ "nextCursor", "string?", "`cursor` of the next page; null: there is none",
		  NULL }) },
	{ "RunEvent", "Something that happened to a run",
	  SHAPE({ "seq", "int", "Its number among all events", NULL },
		{ "runId", "uuid", NULL, NULL }, { "agentId", "uuid?", NULL, NULL },
		{ "eventType", "string", NULL, NULL }, { "payload", "object", NULL, NULL },
		{ "createdAt", "time", NULL, NULL }) },
	{ "RunLogPage", "A page of the output of a run",
	  SHAPE({ "runId", "uuid", NULL, NULL }, { "store", "string", NULL, NULL },
		{ "logRef", "string", NULL, NULL },
		{ "content", "string", "Lines of JSON {ts, stream, chunk}", NULL },
		{ "offset", "int", "Where the page begins, in bytes of output", NULL },
		{ "endOffset", "int", "Where the next page begins", NULL },
		{ "nextOffset?", "int", "The same, when there is more already", NULL },
		{ "outputLost?", "int", "Bytes that are gone since the machine went down",
		  NULL }) },
	{ "Activity", "Who did what",
	  SHAPE({ "id", "uuid", NULL, NULL }, { "seq", "int", NULL, NULL },
		{ "companyId", "uuid?", NULL, NULL }, { "actorType", "string", NULL, NULL },
		{ "actorId", "string", NULL, NULL }, { "action", "string", NULL, NULL },
		{ "entityType", "string", NULL, NULL }, { "entityId", "string", NULL, NULL },
		{ "agentId", "string?", NULL, NULL }, { "runId", "string?", NULL, NULL },
		{ "details", "object?", NULL, NULL }, { "createdAt", "time", NULL, NULL }) },
	{ "ActivityPage", "A page of activity",
	  SHAPE({ "items", "[Activity]", NULL, NULL }, { "nextCursor", "string?", NULL, NULL }) },
	{ "Exec", "One command started in a place",
	  SHAPE({ "id", "uuid", NULL, NULL }, { "runId?", "uuid?", NULL, NULL },
		{ "leaseId", "uuid?", NULL, NULL }, { "command?", "[string]?", NULL, NULL },
		{ "tty?", "any", NULL, NULL }, { "createdAt?", "time?", NULL, NULL },
		{ "startedAt?", "time?", NULL, NULL }, { "finishedAt?", "time?", NULL, NULL },
		{ "status", "string", NULL, NULL },
		{ "statusReason?", "string", "Why it runs but is not followed", NULL },
		{ "found?", "bool", "It ran in the place, and no record explained it", NULL },
		{ "exitCode?", "int?", NULL, NULL }, { "signal?", "string?", NULL, NULL },
		{ "reason?", "string?", NULL, NULL }, { "durationMs?", "int?", NULL, NULL },
		{ "error?", "string?", NULL, NULL }, { "stdoutBytes?", "int?", NULL, NULL },
		{ "stderrBytes?", "int?", NULL, NULL }, { "outputBytes?", "int?", NULL, NULL },
		{ "outputLost?", "int", "Bytes of it that are gone since the machine went down",
		  NULL },
		{ "stalled?", "bool", NULL, NULL }) },
	{ "ExecResult", "An exec that was waited for, with its output",
	  SHAPE({ "execId", "uuid", NULL, NULL }, { "exitCode", "int?", NULL, NULL },
		{ "signal", "string?", NULL, NULL },
		{ "reason", "string", "How it ended", exec_reason_names },
		{ "durationMs", "int", NULL, NULL }, { "error?", "string", NULL, NULL },
		{ "outputLost?", "int", "Bytes of output that are gone since the machine went down",
		  NULL },
		{ "stdout", "string", NULL, NULL }, { "stdoutEncoding?", "string", NULL, NULL },
		{ "stdoutTruncated", "bool", NULL, NULL }, { "stderr", "string", NULL, NULL },
		{ "stderrEncoding?", "string", NULL, NULL },
		{ "stderrTruncated", "bool", NULL, NULL }) },
	{ "Taken", "How much of a body was taken", SHAPE({ "bytes", "int", NULL, NULL }) },
	{ "File", "What is known about a file in a place",
	  SHAPE({ "path", "string", NULL, NULL }, { "type", "string", NULL, NULL },
		{ "mode", "string", "Octal", NULL }, { "size", "int", NULL, NULL },
		{ "mtime", "time?", NULL, NULL }, { "uid", "int", NULL, NULL },
		{ "gid", "int", NULL, NULL },
		{ "target?", "string", "Where a symbolic link points", NULL }) },
	{ "FilePage", "A page of a directory",
	  SHAPE({ "entries", "[File]", NULL, NULL }, { "nextCursor", "string?", NULL, NULL }) },
	{ "Nothing", "Done; nothing to say", NULL, (const struct shape_field[]){ { 0 } } },
	{ "Unexplained", "An object that no place explains, or a promise not kept yet",
	  SHAPE({ "kind", "string", NULL, NULL }, { "id", "string?", NULL, NULL },
		{ "where", "string?", NULL, NULL }, { "reason", "string", NULL, NULL },
		{ "since?", "time?", NULL, NULL }) },
	{ "Health", "A caller who is not known sees the status only",
	  SHAPE({ "status", "string", "`ok` or `degraded`", NULL },
		{ "database?", "object", NULL, NULL }, { "version?", "string", NULL, NULL },
		{ "nodeId?", "string", NULL, NULL }, { "bootEpoch?", "int", NULL, NULL },
		{ "leases?", "object?", NULL, NULL }, { "runs?", "object", NULL, NULL },
		{ "execs?", "object", NULL, NULL }, { "connections?", "int", NULL, NULL },
		{ "clockDriftMs?", "int", NULL, NULL }, { "diskFreeBytes?", "int", NULL, NULL },
		{ "uptimeMs?", "int", NULL, NULL }, { "pid?", "int", NULL, NULL },
		{ "dataPath?", "string", NULL, NULL },
		{ "warnings?", "[string]", "Sentences for people", NULL }) },
	{ "Keeper", "Whether commands can be kept",
	  SHAPE({ "keeper", "object",
		  "startedWith: directories that one of an earlier release goes by", NULL },
		{ "relay", "object", NULL, NULL },
		{ "allow", "object",
		  "What callers with a token may have of this host: the settings in force, by name",
		  NULL }) },
	{ "Pruned", "How many rows of each kind went, or would go",
	  SHAPE({ "runs?", "int", NULL, NULL }, { "leases?", "int", NULL, NULL },
		{ "activity?", "int", NULL, NULL }, { "events?", "int", NULL, NULL },
		{ "keys?", "int", NULL, NULL }, { "execs?", "int", NULL, NULL },
		{ "workspaces?", "int", "Results of runs", NULL }) },
	{ "Token", "A way in; its text is shown once, when it is made", TOKEN_COLUMNS, NULL },
	{ "User", "A person", USER_COLUMNS, NULL },
	{ "Member", "A person or an agent in a company",
	  SHAPE({ "companyId", "uuid", NULL, NULL }, { "companyName?", "string", NULL, NULL },
		{ "principalType", "string", NULL, NULL }, { "principalId", "string", NULL, NULL },
		{ "name", "string?", NULL, NULL }, { "role", "string?", NULL, NULL },
		{ "status", "string", NULL, NULL },
		{ "grants", "[string]", "What was granted besides the role", NULL },
		{ "permissions", "[string]", "What role and grants come to", NULL }, TIMES) },
	{ "Me", "Who is asking",
	  SHAPE({ "type", "string", NULL, NULL }, { "id", "string", NULL, NULL },
		{ "name", "string", NULL, NULL }, { "source", "string", NULL, NULL },
		{ "isInstanceAdmin", "bool", NULL, NULL }, { "runId", "uuid?", NULL, NULL },
		{ "agentId?", "uuid", NULL, NULL }, { "companyId?", "uuid", NULL, NULL },
		{ "memberships?", "[Member]", NULL, NULL },
		{ "permissions?", "[string]", NULL, NULL }) },
	{ "AdapterKey", "One setting of an adapter",
	  SHAPE({ "name", "string", NULL, NULL }, { "summary", "string?", NULL, NULL }) },
	{ "Adapter", "A tool that runs with a prompt can use",
	  SHAPE({ "adapterType", "string", NULL, NULL }, { "name", "string", NULL, NULL },
		{ "takesPrompt", "bool", NULL, NULL }, { "remoteManaged", "bool", NULL, NULL },
		{ "command", "string?", NULL, NULL }, { "versionArgs", "[string]?", NULL, NULL },
		{ "installHint", "string?", NULL, NULL }, { "drivers", "map", NULL, NULL },
		{ "configKeys", "[AdapterKey]", NULL, NULL }) },
	{ "AdapterCheck", "One finding",
	  SHAPE({ "code", "string", NULL, NULL }, { "level", "string", NULL, NULL },
		{ "message", "string", NULL, NULL }, { "detail?", "string", NULL, NULL },
		{ "hint?", "string", NULL, NULL }) },
	{ "AdapterTest", "What was found where the adapter would run",
	  SHAPE({ "adapterType", "string", NULL, NULL }, { "status", "string", NULL, NULL },
		{ "checks", "[AdapterCheck]", NULL, NULL }, { "testedAt", "time", NULL, NULL }) },
	{ "Backup", "Where the copy is",
	  SHAPE({ "path", "string", NULL, NULL }, { "bytes?", "int", NULL, NULL }) },
	{ 0 },
};

const struct shape *shape_find(const char *name)
{
	for (const struct shape *shape = SHAPES; shape->name; shape++)
		if (streq(shape->name, name))
			return shape;
	return NULL;
}

/* A field of a shape, whichever of its two tables it stands in. */
struct shown_field {
	char name[TYPE_MAX], type[TYPE_MAX];
	const char *summary;
	const char *const *one_of;
	bool optional;
};

static void show_field(const struct shape_field *field, struct shown_field *out)
{
	size_t len = strlen(field->name);

	*out = (struct shown_field){ .summary = field->summary, .one_of = field->one_of };
	out->optional = str_ends(field->name, "?");
	snprintf(out->name, TYPE_MAX, "%.*s", (int)(len - out->optional), field->name);
	snprintf(out->type, TYPE_MAX, "%s", field->type);
}

static void show_column(const struct column *column, struct shown_field *out)
{
	static const char *const TYPES[] = {
		[COLUMN_ID] = "uuid",       [COLUMN_TEXT] = "string", [COLUMN_WORD] = "string",
		[COLUMN_JSON] = "object",   [COLUMN_INT] = "int",     [COLUMN_TIME] = "time",
		[COLUMN_BOOL] = "bool",     [COLUMN_COUNT] = "int?",  [COLUMN_CODE] = "int?",
		[COLUMN_STRV] = "[string]",
	};

	*out = (struct shown_field){ .summary = column->summary, .one_of = column->words };
	out->optional = column->flags & (COLUMN_SPARSE | COLUMN_VIEW);
	snprintf(out->name, TYPE_MAX, "%s", column->key);
	snprintf(out->type, TYPE_MAX, "%s%s", column->shape ? column->shape : TYPES[column->type],
		 column->flags & COLUMN_NULLABLE ? "?" : "");
}

/* The field at an index among those that are shown; false past the last. */
static bool field_at(const struct shape *shape, size_t index, struct shown_field *out)
{
	if (!shape->columns) {
		if (!shape->fields[index].name)
			return false;
		show_field(&shape->fields[index], out);
		return true;
	}
	for (const struct column *c = shape->columns; c->key || c->name; c++) {
		if (!c->key || index--)
			continue;
		show_column(c, out);
		return true;
	}
	return false;
}

/* The words of the language: JSON type, format, and whether a value is one. */
static bool is_uuid(const json_t *v)
{
	return id_is_valid(json_string_value(v));
}
static bool is_time(const json_t *v)
{
	int64_t ms;

	return json_is_string(v) && time_parse_iso(json_string_value(v), &ms) == 0;
}
static bool is_string(const json_t *v)
{
	return json_is_string(v);
}
static bool is_int(const json_t *v)
{
	return json_is_integer(v);
}
static bool is_number(const json_t *v)
{
	return json_is_number(v);
}
static bool is_bool(const json_t *v)
{
	return json_is_boolean(v);
}
static bool is_object(const json_t *v)
{
	return json_is_object(v);
}
static bool is_anything(const json_t *v)
{
	return v != NULL;
}
static bool is_map(const json_t *v)
{
	const char *key;
	json_t *value;

	json_object_foreach ((json_t *)v, key, value) {
		if (!json_is_string(value))
			return false;
	}
	return json_is_object(v);
}

static const struct word {
	const char *word, *type, *format;
	bool (*is)(const json_t *value);
} WORDS[] = {
	{ "string", "string", NULL, is_string }, { "int", "integer", "int64", is_int },
	{ "number", "number", NULL, is_number }, { "bool", "boolean", NULL, is_bool },
	{ "uuid", "string", "uuid", is_uuid },   { "time", "string", "date-time", is_time },
	{ "object", "object", NULL, is_object }, { "map", "object", NULL, is_map },
	{ "any", NULL, NULL, is_anything },
};

static const struct word *find_word(const char *text)
{
	for (size_t i = 0; i < ARRAY_SIZE(WORDS); i++)
		if (streq(WORDS[i].word, text))
			return &WORDS[i];
	return NULL;
}

static json_t *word_schema(const struct word *word)
{
	json_t *schema = json_object();

	if (word->type)
		json_put_str(schema, "type", word->type);
	if (word->format)
		json_put_str(schema, "format", word->format);
	if (streq(word->word, "object"))
		json_put_bool(schema, "additionalProperties", true);
	if (streq(word->word, "map"))
		json_put_new(schema, "additionalProperties", json_pack("{s:s}", "type", "string"));
	return schema;
}

static json_t *or_null(json_t *schema)
{
	const char *type = json_str(schema, "type");

	if (!type)
		return json_pack("{s:[o,{s:s}]}", "anyOf", schema, "type", "null");
	json_put_new(schema, "type", json_pack("[s,s]", type, "null"));
	return schema;
}

/* "[T]?" -> "T", is array, is nullable. */
static void take_apart(const char *type, char inner[TYPE_MAX], bool *array, bool *nullable)
{
	size_t len = strlen(type);

	*nullable = len && type[len - 1] == '?';
	len -= *nullable;
	*array = len >= 2 && type[0] == '[' && type[len - 1] == ']';
	snprintf(inner, TYPE_MAX, "%.*s", (int)(len - (*array ? 2 : 0)), type + *array);
}

json_t *shape_type_schema(const char *type)
{
	char inner[TYPE_MAX];
	bool array, nullable;
	json_t *schema;

	take_apart(type, inner, &array, &nullable);
	if (array) {
		json_t *items = shape_type_schema(inner);

		schema = items ? json_pack("{s:s,s:o}", "type", "array", "items", items) : NULL;
	} else if (find_word(inner)) {
		schema = word_schema(find_word(inner));
	} else if (shape_find(inner)) {
		schema = json_object();
		json_put_new(schema, "$ref", json_sprintf("#/components/schemas/%s", inner));
	} else {
		return NULL;
	}
	return schema && nullable ? or_null(schema) : schema;
}

static void put_choices(json_t *schema, const struct shown_field *field)
{
	json_t *choices = json_array();

	for (const char *const *word = field->one_of; *word; word++)
		json_array_append_new(choices, json_string(*word));
	json_put_new(schema, "enum", choices);
}

json_t *shape_schema(const struct shape *shape)
{
	json_t *schema = json_object(), *properties = json_object(), *required = json_array();
	struct shown_field field;

	json_put_str(schema, "type", "object");
	json_put_str(schema, "description", shape->summary);
	for (size_t i = 0; field_at(shape, i, &field); i++) {
		json_t *property = shape_type_schema(field.type);

		if (!field.optional)
			json_array_append_new(required, json_string(field.name));
		if (property && field.summary)
			json_put_str(property, "description", field.summary);
		if (property && field.one_of)
			put_choices(property, &field);
		json_put_new(properties, field.name, property);
	}
	json_put_new(schema, "properties", properties);
	if (json_array_size(required))
		json_put_ref(schema, "required", required);
	json_decref(required);
	return schema;
}

static bool fields_match(const struct shape *shape, const json_t *object, struct buf *why)
{
	struct shown_field field;
	size_t known = 0;

	for (size_t i = 0; field_at(shape, i, &field); i++) {
		const json_t *value = json_object_get(object, field.name);

		known += value != NULL;
		if (!value && field.optional)
			continue;
		if (!value || !shape_matches(field.type, value, why)) {
			buf_printf(why, " in %s.%s", shape->name, field.name);
			return false;
		}
	}
	if (known == json_object_size(object))
		return true;
	buf_printf(why, "a key of %s that its shape does not have", shape->name);
	return false;
}

bool shape_matches(const char *type, const json_t *value, struct buf *why)
{
	char inner[TYPE_MAX];
	bool array, nullable;
	const struct shape *shape;
	const struct word *word;

	take_apart(type, inner, &array, &nullable);
	if (nullable && json_is_null(value))
		return true;
	if (array) {
		for (size_t i = 0; i < json_array_size(value); i++)
			if (!shape_matches(inner, json_array_get(value, i), why))
				return false;
		if (!json_is_array(value))
			buf_printf(why, "no array for %s", type);
		return json_is_array(value);
	}
	word = find_word(inner);
	shape = word ? NULL : shape_find(inner);
	if (shape && json_is_object(value))
		return fields_match(shape, value, why);
	if (word && word->is(value))
		return true;
	buf_printf(why, "not %s", type);
	return false;
}
