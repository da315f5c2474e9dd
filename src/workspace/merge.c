#include "workspace/merge.h"

#include <string.h>
#include "base/fault.h"

static bool same_target(const struct tree_entry *a, const struct tree_entry *b)
{
	return a->target_len == b->target_len && a->target && b->target &&
	       memcmp(a->target, b->target, a->target_len) == 0;
}

static bool same_bytes(const struct tree_entry *a, const struct tree_entry *b)
{
	return (a->flags & TREE_HAS_HASH) && (b->flags & TREE_HAS_HASH) && a->size == b->size &&
	       memcmp(a->sha256, b->sha256, TREE_HASH_SIZE) == 0;
}

/* Specials are never equal: nothing is known of them that could be compared. */
static bool same(const struct tree_entry *a, const struct tree_entry *b, uint32_t mode_mask)
{
	if (a->type != b->type)
		return false;
	switch (a->type) {
	case TREE_NONE:
	case TREE_DIR:
		return true;
	case TREE_FILE:
		return ((a->mode ^ b->mode) & mode_mask) == 0 && same_bytes(a, b);
	case TREE_SYMLINK:
		return same_target(a, b);
	case TREE_SPECIAL:
		return false;
	}
	return false;
}

bool merge_is_base(const struct tree_entry *base, const struct tree_entry *host)
{
	if (base->type == TREE_FILE && host->type == TREE_FILE && tree_entry_same_state(base, host))
		return true;
	return same(base, host, 07777);
}

/* What comes from a place has no bits above 0777; a host's file that has them is compared without.
 */
bool merge_is_place(const struct tree_entry *place, const struct tree_entry *host)
{
	return same(place, host, 0777);
}

bool merge_wants_hash(const struct tree_entry *base, const struct tree_entry *place,
		      const struct tree_entry *host)
{
	if (host->type != TREE_FILE || (host->flags & TREE_HAS_HASH))
		return false;
	if (base->type == TREE_FILE && tree_entry_same_state(base, host))
		return false;
	return (base->type == TREE_FILE && (base->flags & TREE_HAS_HASH) &&
		base->size == host->size) ||
	       (place->type == TREE_FILE && place->size == host->size);
}

enum merge_verdict merge_decide(const struct tree_entry *base, const struct tree_entry *place,
				const struct tree_entry *host)
{
	if (merge_is_place(place, host))
		return MERGE_NOTHING;
	if (merge_is_base(base, host))
		return MERGE_TAKE;
	if (FENCE_OFF("workspace.merge.base"))
		return MERGE_TAKE;
	return place->type == TREE_NONE ? MERGE_KEEP_HOST : MERGE_KEEP_BOTH;
}
