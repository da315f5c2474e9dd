/* state.json: what the engine must remember of a run's files. */
#include <errno.h>
#include <string.h>
#include "base/fd.h"
#include "base/text.h"
#include "workspace/results.h"

/* Paths are bytes: one that is no UTF-8 is kept as {"base64": ...}. */
#define STATE_MAX ((size_t)16 << 20)

static const char *const mode_names[] = {
#define X(name, text) [name] = text,
	WORKSPACE_MODES(X)
#undef X
};
static const char *const phase_names[] = {
#define X(name, text) [name] = text,
	WORKSPACE_PHASES(X)
#undef X
};

const char *workspace_mode_name(enum workspace_mode mode)
{
	return mode_names[mode];
}

const char *workspace_phase_name(enum workspace_phase phase)
{
	return phase_names[phase];
}

static int find_word(const char *const *words, size_t count, const char *text)
{
	for (size_t i = 0; text && i < count; i++) {
		if (streq(words[i], text))
			return (int)i;
	}
	return -1;
}

int workspace_mode_parse(const char *text, enum workspace_mode *out)
{
	int found = find_word(mode_names, ARRAY_SIZE(mode_names), text);

	if (found < 0)
		return -1;
	*out = (enum workspace_mode)found;
	return 0;
}

void workspace_state_clear(struct workspace_state *state)
{
	free(state->path);
	free(state->place_root);
	free(state->place_id);
	free(state->worktree);
	json_decref(state->show);
	json_decref(state->git);
	git_seen_free(state->seen);
	json_decref(state->report);
	memset(state, 0, sizeof(*state));
}

static void put_path(json_t *object, const char *key, const char *path)
{
	_cleanup_buf_ struct buf text = { 0 };

	if (!path || utf8_valid(path, strlen(path))) {
		json_put_str(object, key, path);
		return;
	}

	json_t *wrapped = json_object();

	base64_encode(&text, path, strlen(path));
	json_put_str(wrapped, "base64", buf_str(&text));
	json_put_new(object, key, wrapped);
}

static char *get_path(const json_t *object, const char *key)
{
	const char *plain = json_str(object, key);
	const char *coded = json_str(json_object_at(object, key), "base64");
	_cleanup_buf_ struct buf bytes = { 0 };

	if (plain)
		return xstrdup(plain);
	if (!coded || !base64_decode(&bytes, coded, strlen(coded)) ||
	    memchr(bytes.data, '\0', bytes.len))
		return NULL;
	return buf_steal(&bytes);
}

static json_t *copy_object(const json_t *object, const char *key)
{
	json_t *value = json_object_at(object, key);

	return value ? json_incref(value) : NULL;
}

static int state_from_json(const json_t *json, const char *run_id, struct workspace_state *out,
			   struct error *err)
{
	int phase = find_word(phase_names, ARRAY_SIZE(phase_names), json_str(json, "phase"));

	if (phase < 0 || workspace_mode_parse(json_str(json, "mode"), &out->mode) < 0 ||
	    !str_equal(json_str(json, "runId"), run_id))
		return error_set(err, ERR_INTERNAL,
				 "the record of run %s's files is damaged: state.json", run_id);
	id_copy(out->run_id, run_id);
	out->phase = (enum workspace_phase)phase;
	out->path = get_path(json, "path");
	out->collect = json_bool(json, "collect", false);
	out->careful = json_bool(json, "careful", false);
	out->allow_large = json_bool(json, "allowLarge", false);
	out->place_root = get_path(json, "placeRoot");
	out->place_id = xstrdup(json_str(json, "placeId"));
	out->worktree = get_path(json, "worktree");
	out->show = json_incref(json_array_at(json, "show"));
	out->git = copy_object(json, "git");
	out->report = copy_object(json, "report");
	out->applied_at = json_int(json, "appliedAt", 0);
	return 0;
}

int workspace_state_load(const struct results *results, const char *run_id,
			 struct workspace_state *out, struct error *err)
{
	_cleanup_close_ int fd = -1;
	_cleanup_buf_ struct buf text = { 0 };
	_cleanup_error_ struct error missing = { 0 };

	memset(out, 0, sizeof(*out));
	if (results_dir(results, run_id, false, &fd, err) < 0)
		return -1;
	if (file_read(fd, RESULTS_STATE, &text, STATE_MAX, &missing) < 0) {
		if (missing.errnum == ENOENT)
			return error_set(err, ERR_NOT_FOUND, "run %s has no files kept here",
					 run_id);
		error_move(err, &missing);
		return error_wrap(err, "the record of run %s's files", run_id);
	}

	_cleanup_json_ json_t *json = json_parse(text.data, text.len, err);

	if (!json)
		return error_wrap(err, "the record of run %s's files", run_id);
	if (state_from_json(json, run_id, out, err) < 0) {
		workspace_state_clear(out);
		return -1;
	}
	return 0;
}

/*
 * Phases that others build on are on the disk when this returns. A phase that only tells what is
 * being done is repeated after a power cut anyway, but one that a person asked for stays known, as
 * does that a worktree is about to be made.
 */
static bool must_last(const struct workspace_state *state)
{
	switch (state->phase) {
	case PHASE_PREPARED:
	case PHASE_FETCHING:
		return false;
	case PHASE_STAGING:
		return state->worktree != NULL;
	case PHASE_APPLYING:
	case PHASE_APPLIED:
		return !state->collect;
	default:
		return true;
	}
}

int workspace_state_save(const struct results *results, const struct workspace_state *state,
			 struct error *err)
{
	_cleanup_close_ int fd = -1;
	_cleanup_json_ json_t *json = json_object();
	_cleanup_free_ char *text = NULL;

	if (results_dir(results, state->run_id, true, &fd, err) < 0)
		return -1;
	json_put_str(json, "runId", state->run_id);
	put_path(json, "path", state->path);
	json_put_str(json, "mode", workspace_mode_name(state->mode));
	json_put_str(json, "phase", workspace_phase_name(state->phase));
	json_put_bool(json, "collect", state->collect);
	json_put_bool(json, "careful", state->careful);
	json_put_bool(json, "allowLarge", state->allow_large);
	put_path(json, "placeRoot", state->place_root);
	json_put_str(json, "placeId", state->place_id);
	put_path(json, "worktree", state->worktree);
	if (state->show)
		json_put_ref(json, "show", state->show);
	json_put_ref(json, "git", state->git);
	json_put_ref(json, "report", state->report);
	json_put_int(json, "appliedAt", state->applied_at);
	text = json_text(json);
	if ((must_last(state) ? file_replace : file_replace_soon)(fd, RESULTS_STATE, text,
								  strlen(text), 0600, err) < 0)
		return error_wrap(err, "the record of run %s's files", state->run_id);
	return 0;
}
