#include "exec/execs_internal.h"
#include "base/log.h"
#include "base/text.h"
#include "wire/message.h"

#define RECENT_BYTES ((int64_t)1 << 30)
#define RECENT_MS ((int64_t)3600 * 1000)
#define COMMAND_BYTES 2048 /* of it in a record: it is for people */

/* ---- what is written down ---- */

void exec_outcome_put(json_t *object, const struct exec_outcome *outcome)
{
	const struct exec_result *result = &outcome->result;

	if (result->exit_code >= 0)
		json_put_int(object, "exitCode", result->exit_code);
	else
		json_put_new(object, "exitCode", NULL);
	json_put_str(object, "signal", result->signal[0] ? result->signal : NULL);
	json_put_str(object, "reason", exec_reason_name(result->reason));
	json_put_int(object, "durationMs", result->duration_ms);
	if (outcome->error[0])
		json_put_str(object, "error", outcome->error);
	if (outcome->output_lost > 0)
		json_put_int(object, "outputLost", outcome->output_lost);
}

static json_t *brief_command(char *const *argv)
{
	json_t *command = json_array();
	size_t left = COMMAND_BYTES;

	for (; *argv && left > 0; argv++) {
		_cleanup_buf_ struct buf word = { 0 };

		utf8_repair(&word, *argv, MIN_OF(strlen(*argv), left));
		left -= MIN_OF(word.len + 1, left);
		json_array_append_new(command, json_stringn(buf_str(&word), word.len));
	}
	return command;
}

void describe_order(struct live_exec *live, const struct exec_order *order)
{
	const struct exec_spec *spec = order->spec;

	id_copy(live->id, spec->exec_id);
	id_copy(live->lease_id, order->lease_id);
	id_copy(live->place_id, spec->place_id);
	live->generation = spec->generation;
	live->command = brief_command(spec->argv);
	live->has_terminal = spec->terminal != NULL;
	live->rows = spec->terminal ? spec->terminal->rows : 0;
	live->cols = spec->terminal ? spec->terminal->cols : 0;
	live->stdin_stream = spec->stdin_stream;
	live->kill_when_left = order->kill_when_left;
	live->created_ms = clock_now(live->execs->clock);
}

static json_t *terminal_of(const struct live_exec *live)
{
	json_t *tty = live->has_terminal ? json_object() : NULL;

	if (tty) {
		json_put_int(tty, "rows", live->rows);
		json_put_int(tty, "cols", live->cols);
	}
	return tty;
}

/* What a relay keeps of it, and a record has: never values of its environment, or its input. */
static void put_details(json_t *object, const struct live_exec *live)
{
	json_put_new(object, "command", json_deep_copy(live->command));
	json_put_new(object, "tty", terminal_of(live));
	json_put_bool(object, "stdinStream", live->stdin_stream);
	json_put_str(object, "onDisconnect", live->kill_when_left ? "kill" : "keep");
	json_put_time(object, "createdAt", live->created_ms);
}

json_t *running_record(const struct live_exec *live)
{
	json_t *record;

	if (live->record)
		return json_deep_copy(live->record);
	record = json_object();
	json_put_str(record, "id", live->id);
	json_put_str(record, "leaseId", live->lease_id);
	json_put_str(record, "placeId", live->place_id);
	json_put_int(record, "generation", live->generation);
	put_details(record, live);
	json_put_str(record, "status", "running");
	return record;
}

char *exec_note(const struct live_exec *live)
{
	_cleanup_json_ json_t *note = json_object();
	char *text;

	json_put_str(note, "leaseId", live->lease_id);
	put_details(note, live);
	text = json_text(note);
	if (strlen(text) <= WIRE_NOTE_MAX)
		return text;
	/* Bytes that JSON writes as escapes. */
	free(text);
	json_put_new(note, "command", NULL);
	return json_text(note);
}

static bool is_command(const json_t *value)
{
	size_t i;
	const json_t *word;

	if (!json_is_array(value))
		return false;
	json_array_foreach (value, i, word)
		if (!json_is_string(word))
			return false;
	return true;
}

static json_t *terminal_of_note(const json_t *note)
{
	const json_t *tty = json_object_at(note, "tty");
	json_t *copy = tty ? json_object() : NULL;

	if (copy) {
		json_put_int(copy, "rows", (uint16_t)json_int(tty, "rows", 24));
		json_put_int(copy, "cols", (uint16_t)json_int(tty, "cols", 80));
	}
	return copy;
}

/* NULL: there is none, or it is not one of ours for this lease. */
static json_t *parse_note(const struct found_exec *found)
{
	json_t *note = found->note ? json_parse(found->note, strlen(found->note), NULL) : NULL;

	if (json_is_object(note) && str_equal(json_str(note, "leaseId"), found->lease_id))
		return note;
	json_decref(note);
	return NULL;
}

/*
 * The relay lives beside hostile programs: of what it gives back only words for people and options
 * of the command itself are taken. Which lease it belongs to says the place.
 */
json_t *record_of_note(const struct found_exec *found)
{
	_cleanup_json_ json_t *note = parse_note(found);
	json_t *command = json_object_get(note, "command");
	const char *created = json_str(note, "createdAt");
	json_t *record = json_object();
	int64_t created_ms;

	json_put_str(record, "id", found->id);
	json_put_str(record, "leaseId", found->lease_id);
	json_put_str(record, "placeId", found->place_id);
	json_put_int(record, "generation", found->generation);
	json_put_new(record, "command", is_command(command) ? json_deep_copy(command) : NULL);
	json_put_new(record, "tty", terminal_of_note(note));
	json_put_bool(record, "stdinStream", json_bool(note, "stdinStream", false));
	json_put_str(record, "onDisconnect",
		     str_equal(json_str(note, "onDisconnect"), "kill") ? "kill" : "keep");
	if (found->found)
		json_put_bool(record, "found", true);
	if (!created || time_parse_iso(created, &created_ms) < 0)
		created_ms = found->started_ms;
	json_put_time(record, "createdAt", created_ms);
	json_put_str(record, "status", "running");
	return record;
}

static json_t *ended_record(const struct live_exec *live, int64_t ended_ms,
			    const struct exec_outcome *outcome)
{
	json_t *record = running_record(live);

	json_put_str(record, "status", "ended");
	json_put_time(record, "endedAt", ended_ms);
	json_put_int(record, "outputBytes", outcome->output_bytes);
	exec_outcome_put(record, outcome);
	return record;
}

int record_ended(struct live_exec *live, const struct exec_outcome *outcome)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *record = ended_record(live, clock_now(live->execs->clock), outcome);

	if (exec_store_put(live->store, live->id, record, &err) == 0)
		return 0;
	log_warn("the outcome of exec %s could not be kept: %s", live->id, err.message);
	return -1;
}

static json_t *find_brief(struct execs *execs, const char *id)
{
	struct live_exec *brief = NULL;
	json_t *record;

	pthread_mutex_lock(&execs->lock);
	for (size_t i = 0; i < execs->recent_count && !brief; i++) {
		const struct recent *r = &execs->recent[(execs->first_recent + i) % RECENT_EXECS];

		if (r->brief && streq(r->id, id))
			brief = r->brief;
	}
	if (brief)
		brief->refs++;
	pthread_mutex_unlock(&execs->lock);
	if (!brief)
		return NULL;
	record = ended_record(brief, brief->ended_ms, &brief->outcome);
	live_exec_unref(brief);
	return record;
}

static json_t *find_record(struct execs *execs, const char *id, struct exec_store **store)
{
	json_t *record = find_brief(execs, id);

	*store = &execs->store[RECENT];

	for (size_t i = 0; i < STORES && !record; i++) {
		*store = &execs->store[i];
		record = exec_store_get(*store, id);
	}
	return record;
}

static int64_t lost_output(struct exec_store *store, const char *id, const json_t *record)
{
	return runlog_missing(store->logs, id, json_int(record, "outputBytes", 0));
}

bool execs_has_output(struct execs *execs, const char *id)
{
	return runlog_size(execs->store[RECENT].logs, id) >= 0;
}

bool execs_know(struct execs *execs, const char *id)
{
	struct live_exec *live = execs_find(execs, id);
	_cleanup_json_ json_t *brief = live ? NULL : find_brief(execs, id);
	bool known = live || brief;

	if (live)
		live_exec_unref(live);
	for (size_t i = 0; i < STORES && !known; i++)
		known = exec_store_has(&execs->store[i], id);
	return known;
}

static int no_such_exec(const char *id, struct error *err)
{
	return error_set(err, ERR_NOT_FOUND, "there is no exec %.40s", id);
}

/* One that an earlier server started and that could not be reached yet. */
static void put_trouble(struct live_exec *live, json_t *record)
{
	pthread_mutex_lock(&live->execs->lock);
	if (live->trouble[0]) {
		_cleanup_free_ char *reason = xasprintf("reconnecting: %s", live->trouble);

		json_put_str(record, "statusReason", reason);
	}
	pthread_mutex_unlock(&live->execs->lock);
}

json_t *execs_describe(struct execs *execs, const char *id, struct error *err)
{
	struct live_exec *live = execs_find(execs, id);
	struct exec_store *store = NULL;
	json_t *record = live ? running_record(live) : find_record(execs, id, &store);
	int64_t lost = record && store ? lost_output(store, id, record) : 0;

	if (lost > 0)
		json_put_int(record, "outputLost", lost);
	if (live) {
		put_trouble(live, record);
		live_exec_unref(live);
	}
	if (!record)
		no_such_exec(id, err);
	return record;
}

json_t *execs_of_lease(struct execs *execs, const char *lease_id)
{
	json_t *list = json_array();
	_cleanup_strv_ char **ids = NULL;

	pthread_mutex_lock(&execs->lock);
	for (const struct live_exec *live = execs->list; live; live = live->next)
		if (streq(live->lease_id, lease_id))
			strv_push(&ids, xstrdup(live->id));
	pthread_mutex_unlock(&execs->lock);
	for (char **id = ids; id && *id; id++) {
		json_t *record = execs_describe(execs, *id, NULL);

		if (record)
			json_array_append_new(list, record);
	}
	return list;
}

int execs_recall(struct execs *execs, const char *id, struct exec_outcome *outcome,
		 struct error *err)
{
	struct exec_store *store;
	_cleanup_json_ json_t *record = find_record(execs, id, &store);

	if (!record)
		return no_such_exec(id, err);
	*outcome =
		(struct exec_outcome){ .result = { .exit_code = -1, .reason = EXEC_LEASE_LOST } };
	if (!str_equal(json_str(record, "status"), "ended")) {
		snprintf(outcome->error, sizeof(outcome->error),
			 "the server ended while the command ran");
		return 0;
	}
	outcome->output_bytes = json_int(record, "outputBytes", 0);
	outcome->output_lost = lost_output(store, id, record);
	outcome->result.exit_code = (int)json_int(record, "exitCode", -1);
	outcome->result.duration_ms = json_int(record, "durationMs", 0);
	snprintf(outcome->result.signal, sizeof(outcome->result.signal), "%s",
		 json_str(record, "signal") ? json_str(record, "signal") : "");
	snprintf(outcome->error, sizeof(outcome->error), "%s",
		 json_str(record, "error") ? json_str(record, "error") : "");
	if (json_str(record, "reason"))
		exec_reason_parse(json_str(record, "reason"), &outcome->result.reason);
	return 0;
}

int execs_read(struct execs *execs, const char *id, int64_t since, struct runlog_reader **reader,
	       struct error *err)
{
	_cleanup_json_ json_t *record = NULL;
	struct exec_store *store;

	record = find_record(execs, id, &store);
	if (!record)
		return no_such_exec(id, err);
	return runlog_reader_open(store->logs, id, since, reader, err);
}

/* ---- what is forgotten ---- */

static bool take_oldest(struct execs *execs, int64_t now, struct recent *out)
{
	const struct recent *oldest = &execs->recent[execs->first_recent];

	if (!execs->recent_count)
		return false;
	if (execs->recent_count < RECENT_EXECS - 1 && oldest->ended_ms > now - RECENT_MS &&
	    (execs->recent_bytes <= RECENT_BYTES || execs->recent_count == 1))
		return false;
	*out = *oldest;
	execs->recent[execs->first_recent].brief = NULL;
	execs->recent_bytes -= out->bytes;
	execs->first_recent = (execs->first_recent + 1) % RECENT_EXECS;
	execs->recent_count--;
	return true;
}

static void forget_recent(struct execs *execs)
{
	int64_t now = clock_now(execs->clock);

	for (;;) {
		_cleanup_error_ struct error err = { 0 };
		struct recent old;

		pthread_mutex_lock(&execs->lock);
		bool some = take_oldest(execs, now, &old);
		pthread_mutex_unlock(&execs->lock);
		if (!some)
			return;
		/* One that was brief and silent has no file. */
		if ((!old.brief || old.bytes > 0) &&
		    exec_store_remove(&execs->store[RECENT], old.id, &err) < 0)
			log_warn("exec %s stays until the next start: %s", old.id, err.message);
		if (old.brief)
			live_exec_unref(old.brief);
	}
}

static void remember(struct execs *execs, const struct recent *recent)
{
	pthread_mutex_lock(&execs->lock);
	if (execs->recent_count < RECENT_EXECS) {
		struct recent *slot =
			&execs->recent[(execs->first_recent + execs->recent_count) % RECENT_EXECS];

		*slot = *recent;
		if (slot->brief)
			slot->brief->refs++;
		execs->recent_count++;
		execs->recent_bytes += recent->bytes;
	}
	pthread_mutex_unlock(&execs->lock);
	forget_recent(execs);
}

void remember_recent(struct live_exec *live, bool recorded)
{
	struct recent recent = { .ended_ms = live->ended_ms,
				 .bytes = live->outcome.output_bytes,
				 .brief = recorded ? NULL : live };

	id_copy(recent.id, live->id);
	remember(live->execs, &recent);
}

void remember_record(struct execs *execs, const char *id, int64_t ended_ms, int64_t bytes)
{
	struct recent recent = { .ended_ms = ended_ms, .bytes = bytes };

	id_copy(recent.id, id);
	remember(execs, &recent);
}

struct pruning {
	struct execs *execs;
	int64_t before_ms, removed;
};

static int prune_one(void *arg, const char *id, int64_t changed_ms, struct error *err)
{
	struct pruning *pruning = arg;
	struct live_exec *live = execs_find(pruning->execs, id);

	if (live)
		live_exec_unref(live);
	if (live || changed_ms >= pruning->before_ms)
		return 0;
	pruning->removed++;
	return exec_store_remove(&pruning->execs->store[KEPT], id, err);
}

int64_t execs_prune(struct execs *execs, int64_t before_ms, struct error *err)
{
	struct pruning pruning = { execs, before_ms, 0 };

	forget_recent(execs);
	if (exec_store_each(&execs->store[KEPT], prune_one, &pruning, err) < 0)
		return -1;
	return pruning.removed;
}
