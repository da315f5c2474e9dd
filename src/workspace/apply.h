/*
 * Collecting, the second half: what a run changed (results.h) goes into the host's directory, by a
 * three-way merge of what was staged, what the place made of it, and what the host has now.
 *
 *     place changed, host as staged    applied
 *     host changed, place as staged    stays
 *     both the same way                nothing to do
 *     both, differently                both are kept: the host's stays under its name, the place's
 * is put beside it as NAME.berth-<first 8 of the run id>[.n] deleted in the place, changed    the
 * host's stays, and the report says so on the host deleted on the host, changed     the place's is
 * put beside, as for a conflict in the place
 *
 * How one file is replaced: the new content is written to the staging directory on the same file
 * system
 * (.git/berth/<run>/ of a repository, else .berth/<run>/ of the workspace), synced, checked; then
 * renameat2(RENAME_EXCHANGE) puts it in place, the file that comes out is compared with what was
 * staged, and swapped back if somebody changed it in between; it is then a conflict. A new file
 * comes by RENAME_NOREPLACE. A deleted file is renamed out and compared, likewise. What came out is
 * kept in old/. Each step is in the journal before it is done; after a crash applying again
 * finishes the job, and no state in between has neither the old nor the new file under the name.
 *
 * Owner: of the file replaced, else of the directory. Modes are masked to 0777. Links come verbatim
 * and are never followed; those that point out of the workspace are listed. Nothing below .git
 * comes this way.
 */
#pragma once

#include "workspace/results.h"

enum change_kind { CHANGE_ADDED, CHANGE_MODIFIED, CHANGE_DELETED, CHANGE_MODE, CHANGE_TYPE };
enum change_fate {
	FATE_APPLIED,
	FATE_SAME,      /* the host has it already */
	FATE_CONFLICT,  /* both kept; `beside` names the place's */
	FATE_KEPT_HOST, /* a deletion that yields to a change */
	FATE_REFUSED,   /* with the reason; nothing was touched */
	FATE_PENDING,   /* not applied yet */
};
struct change {
	struct tree_entry entry; /* as the place has it; TREE_NONE when deleted */
	enum change_kind kind;
	enum change_fate fate;
	const char *beside;
	const char *reason;
};
typedef int change_fn(void *arg, const struct change *change, struct error *err);

struct apply_options {
	bool dry_run;  /* says what would be done */
	int cancel_fd; /* between files; -1: none */
	void (*progress)(void *arg, const struct scan_progress *now);
	void *progress_arg;
};
struct apply_report {
	uint64_t added, modified, deleted, same, conflicts, kept_host, refused, bytes;
};
/*
 * Applies the changes of a run in phase fetched or applying to state->path (or the worktree). `fn`
 * hears of every change. One collect per workspace at a time (an OFD lock in the staging directory;
 * waits up to 30 s, then ERR_LOCKED).
 */
int results_apply(const struct results *results, struct workspace_state *state,
		  const struct apply_options *options, change_fn *fn, void *arg,
		  struct apply_report *report, struct error *err);
/* The same list without the host: what the place changed. */
int results_changes(const struct results *results, const char *run_id, change_fn *fn, void *arg,
		    struct error *err);
/*
 * A unified diff of base and place, text by the rules of git diff (binary files by one line), to
 * fd. The old side is read from the host's file if it is still as staged, or from old/; otherwise a
 * line says that it is not there any more.
 */
int results_diff(const struct results *results, const char *run_id, int fd, struct error *err);
