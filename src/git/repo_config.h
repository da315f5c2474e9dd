/*
 * A repository's settings: which of them matter to us, and which of them a place may know.
 */
#pragma once

#include "git/repo.h"

struct git_settings {
	bool sha256;
	bool partial;         /* objects are fetched when somebody asks for them */
	bool filters;         /* programs stand between files and objects */
	const char *refused;  /* an extension of the format that we cannot carry, or NULL */
	struct buf for_place; /* the text of the place's config */
};
void git_settings_clear(struct git_settings *settings);
/* Of repo->seen, if it has them. */
int git_settings_read(const struct git_repo *repo, struct git_settings *out, struct error *err);

/* See git.h. Times are of boottime_ms; 0: not asked yet. */
struct git_seen {
	struct git_settings settings;
	struct buf tracked; /* paths, each with a NUL (hidden.c) */
	int64_t settings_at, tracked_at;
};
bool git_seen_is_fresh(int64_t asked_at);

/*
 * A remote's address as a place may know it, or NULL when it may not: no passwords, no queries; no
 * paths of this machine.
 */
char *git_scrub_url(const char *url);
