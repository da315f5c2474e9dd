#include "wire/hidden_paths.h"

#include <string.h>
#include "base/path.h"

static const char *take_text(const char **at, const char *end)
{
	const char *text = *at;
	const char *nul = memchr(text, 0, (size_t)(end - text));

	*at = nul ? nul + 1 : end;
	return nul ? text : NULL;
}

int mask_next(const char **at, const char *end, struct mask *out, struct error *err)
{
	char kind;

	if (*at == end)
		return 0;
	kind = *(*at)++;
	*out = (struct mask){ .kind = (enum mask_kind)kind, .path = take_text(at, end) };
	if (kind == MASK_FILE)
		out->content = take_text(at, end);
	else if (kind != MASK_HIDDEN && kind != MASK_EMPTY)
		return error_set(err, ERR_PROTOCOL, "the list of masks has a record of no kind");
	if (!out->path || out->path[0] == '/' || !path_is_clean(out->path) ||
	    (kind == MASK_FILE && !out->content))
		return error_set(err, ERR_PROTOCOL, "the list of masks has a torn record");
	return 1;
}

void mask_add(struct buf *list, enum mask_kind kind, const char *path, const char *content)
{
	buf_putc(list, (char)kind);
	buf_append(list, path, strlen(path) + 1);
	if (kind == MASK_FILE)
		buf_append(list, content, strlen(content) + 1);
}
