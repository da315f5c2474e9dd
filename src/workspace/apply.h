/*
 * Collecting, the second half: what a run changed (results.h) goes into the host's directory, by a
 * three-way merge of what was staged, what the place made of it, and what the host has now.
 *
 *     place changed, host as staged          applied
 *     host changed, place as staged          stays
 *     both the same way                      nothing to do
 *     both, differently                      both are kept: the host's under its name, the place's
 *                                            beside it as NAME.berth-<last 8 of the run id>[.n]
 *     deleted in the place, changed here     the host's stays, and the report says so
 *     deleted here, changed in the place     the place's is put beside, as for a conflict
 *     a rule file that would show more       held: put beside (or not deleted), for a person to
 *                                            decide. With state->careful also what runs by itself
 *
 * How one file is replaced: the new content is written to the staging directory on the same file
 * system (apply_stage.h), synced, checked; then renameat2(RENAME_EXCHANGE) puts it in place, the
 * file that comes out is compared with what was staged, and swapped back if somebody changed it in
 * between, or has it open for writing; it is then a conflict. A new file comes by RENAME_NOREPLACE.
 * A deleted file is renamed out and compared, likewise. What came out stays in the staging
 * directory until the run is dropped. Each step is in the journal before it is done; after a crash
 * applying again finishes the job, and no state in between has neither the old nor the new file
 * under the name (but on file systems without RENAME_EXCHANGE, where there is a moment between the
 * two that applying again ends).
 *
 * What is in the way of a directory (a person made a file or a link of it) is gone around: what the
 * place has below it goes into a directory beside it, named as above.
 *
 * Owner: of the file replaced, else of the directory. Modes are masked to 0777; directories that
 * are there keep theirs. Links come verbatim and are never followed; those that point out of the
 * workspace are listed. Nothing below a .git comes this way, and nothing goes into another file
 * system that is mounted inside the workspace: such paths are refused, each with its reason.
 */
#pragma once

#include "workspace/results.h"

#define CHANGE_KINDS(X)                                                                            \
	X(CHANGE_ADDED, "added")                                                                   \
	X(CHANGE_MODIFIED, "modified")                                                             \
	X(CHANGE_DELETED, "deleted")                                                               \
	X(CHANGE_MODE, "mode")                                                                     \
	X(CHANGE_TYPE, "type")

#define CHANGE_FATES(X)                                                                            \
	X(FATE_APPLIED, "applied")                                                                 \
	X(FATE_SAME, "same")           /* the host has it already */                               \
	X(FATE_CONFLICT, "conflict")   /* both kept; `beside` names the place's */                 \
	X(FATE_KEPT_HOST, "kept_host") /* a deletion that yields to a change */                    \
	X(FATE_REFUSED, "refused")     /* with the reason; nothing was touched */                  \
	X(FATE_PENDING, "pending")     /* not applied yet */                                       \
	X(FATE_HELD, "held")           /* a person is to decide; `beside` names the place's */

/* Fates are in journals on disk: append only. */
#define X(name, text) name,
enum change_kind { CHANGE_KINDS(X) };
enum change_fate { CHANGE_FATES(X) };
#undef X
const char *change_kind_name(enum change_kind kind);
const char *change_fate_name(enum change_fate fate);

struct change {
	struct tree_entry entry; /* as the place has it; TREE_NONE when deleted */
	enum tree_type was;      /* before; TREE_NONE when added */
	enum change_kind kind;
	enum change_fate fate;
	const char *beside;
	const char *reason;
	const char *runs; /* what runs it by itself; NULL: nothing */
};
typedef int change_fn(void *arg, const struct change *change, struct error *err);

struct apply_options {
	bool dry_run;  /* says what would be done */
	int cancel_fd; /* between files; -1: none */
	void (*progress)(void *arg, const struct scan_progress *now);
	void *progress_arg;
	/* Called before each step: where a test is somebody else at work in the workspace. */
	void (*at_step)(void *arg, const char *step);
	void *at_step_arg;
};
/* Files and links; directories that came, went or have another mode are counted apart. */
struct apply_report {
	uint64_t directories;
	uint64_t added, modified, deleted, same, conflicts, kept_host, held, refused, bytes;
	uint64_t runs; /* of these, that run by themselves */
};
/*
 * Applies the changes of a run that were fetched to state->path (or the worktree). `fn` hears of
 * every change, in order, when all is done. May be called again at any time: what is done stays,
 * what was refused is tried again. One collect per workspace at a time (an OFD lock; waits up to
 * 30 s, then ERR_LOCKED).
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
