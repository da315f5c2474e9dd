/* What files.c and file_stream.c share. */
#pragma once

#include "place/files.h"
#include "place/places.h"

#define FILE_WAIT_MS 60000

void file_info_take(const struct wire_file_info *m, const char *path, struct file_info *out);
/* As the relay wants it; NULL with ERR_BAD_PATH. */
char *place_file_path(const struct open_place *place, const char *path, struct error *err);
/* The open place if it has no relay, a reference; NULL also when it is not open. */
struct open_place *place_file_shell(const struct place_ref *ref);
/* The open place and the link to its relay, references both; NULL when there is none. */
struct open_place *place_file_reach(const struct place_ref *ref, int64_t deadline,
				    struct link **link, struct error *err);
