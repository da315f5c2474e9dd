/* What the files of apply share; see apply.h. */
#pragma once

#include "base/fault.h"
#include "workspace/apply.h"
#include "workspace/apply_host.h"
#include "workspace/apply_stage.h"
#include "workspace/journal.h"

#define APPLY_TAG_SIZE 9

struct apply {
	const struct apply_options *options;
	int run_fd, workspace_fd;
	struct manifest *base, *changes;
	struct journal *journal;
	struct staging staging;
	char tag[APPLY_TAG_SIZE]; /* in the names of what is kept beside */
	bool careful;             /* what runs by itself is kept beside */
};

/* One step, where a test may kill, and where it may be somebody else at work. */
#define APPLY_STEP(a, text, err)                                                                   \
	({                                                                                         \
		if ((a)->options->at_step)                                                         \
			(a)->options->at_step((a)->options->at_step_arg, (text));                  \
		FAULT_HERE(text, err);                                                             \
	})

/* --- ways: apply_path.c --- */

/* Where in the host's tree something of the place goes. */
struct way {
	int parent; /* -1: there is none, for the reason in errnum */
	int errnum;
	char *path; /* of the host's */
	const char *name;
	bool redirected; /* it is not the place's */
};
void way_clear(struct way *way);
/*
 * Missing directories are made, and what is in a directory's place is gone around by a directory
 * beside it. -1 only for what ends applying as a whole.
 */
int apply_find_way(struct apply *a, const char *path, struct way *way, struct error *err);
/* path + ".berth-<tag>", from the second on with ".<n>"; cut so that it is a name. */
char *apply_beside(const char *path, const char *tag, unsigned n);
/* Whether the run itself has something under that name. */
bool apply_is_known(const struct apply *a, const char *path);
/* Like rename, but never over anything: EEXIST. */
int apply_rename_new(const struct apply *a, int from_fd, const char *from, int to_fd,
		     const char *to);
/* Why nothing can be done there, for the report. */
const char *apply_refusal(int errnum);
/* Errors of the machine, which the next path would meet as well. */
bool apply_is_fatal(int errnum);
/* What was done is on disk before the journal says so. */
int apply_sync(struct apply *a, struct error *err);

/* --- acts: apply_act.c --- */

struct act {
	uint32_t number;
	enum journal_act kind;
	enum change_fate fate;      /* when it succeeds */
	struct tree_entry place;    /* what goes in */
	struct tree_entry expected; /* what is to come out */
	bool beside;                /* put beside its name, under one that is found then */
	struct staged_owner owner;
	uint64_t dev, ino; /* of the staged entry */
	char *reason;
};
void act_clear(struct act *act);
/* What it is when it ends beside its name. */
static inline enum change_fate act_fate_beside(const struct act *act)
{
	return act->fate == FATE_HELD ? FATE_HELD : FATE_CONFLICT;
}
/* The intent is in the journal. Ends with an outcome there. */
int act_perform(struct apply *a, struct act *act, struct error *err);
/*
 * Takes up an act that has an intent and no outcome. *done: it has one now; else nothing of it is
 * left and the change is to be decided anew.
 */
int act_resume(struct apply *a, struct act *act, const struct journal_intent *intent, bool *done,
	       struct error *err);
void act_conclude(struct apply *a, const struct act *act, enum change_fate fate, const char *beside,
		  const char *reason);

/* --- what is not merged by itself: guard.c --- */

/* What runs the entry that was changed; as names_run, and knows repositories by their parts. */
const char *change_runs(const struct manifest *base, const struct manifest *changes,
			const struct tree_entry *entry);
/* Why the change, which the host's state allows, is not made; NULL: it is. Allocated. */
char *guard_change(const struct apply *a, const struct tree_entry *place,
		   const struct tree_entry *host);

/* --- what became of each change: changes.c --- */

struct changes_view {
	int run_fd;
	struct manifest *base, *changes;
	struct journal *journal; /* for reading */
};
/* To be closed also when it fails. ERR_CONFLICT before the files were fetched. */
int changes_open(const struct results *results, const char *run_id, struct changes_view *out,
		 struct error *err);
void changes_close(struct changes_view *view);
bool change_is_of_directory(const struct change *change);
void apply_count(struct apply_report *report, const struct change *change);
int changes_walk(const struct manifest *base, const struct manifest *changes,
		 const struct journal *journal, change_fn *fn, void *arg, struct error *err);

/* What was staged, or an entry of type TREE_NONE. */
void change_base(const struct manifest *base, const struct tree_entry *entry,
		 struct tree_entry *out);
enum change_kind change_kind_of(const struct tree_entry *base, const struct tree_entry *place);
