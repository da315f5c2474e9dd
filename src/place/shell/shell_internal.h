/* What the files of the shell runner share, and where the rest of the room meets it. */
#pragma once

#include "place/files.h"
#include "place/places.h"

static inline bool place_is_shell(const struct open_place *place)
{
	return place->one_shot.call != NULL;
}

/* A refusal: "this place has no relay: <what>". */
int shell_refuse(struct error *err, const char *what);
/* A call while the place is open; counted, so that shell_stop can wait for it. */
int shell_call(struct open_place *place, const struct one_shot_call *call,
	       struct one_shot_result *result, struct error *err);

/* Of place/exec.c and its neighbours. The command begins with shell_wait, so whoever has to write down
 * that it begins can do so in between. */
int shell_exec_prepare(struct exec *exec, const struct exec_spec *spec, struct error *err);
int shell_exec_wait(struct exec *exec, struct error *err);
int shell_exec_adopt(struct error *err);
void shell_exec_free(struct shell_exec *shell);
/* Ends the call of an exec that is not wanted any more. */
void shell_exec_cancel(struct exec *exec);

/* Makes every call of the place return; waits for that at most until the deadline. */
int shell_stop(struct open_place *place, int64_t deadline, struct error *err);

/* Files: as place/files.h, for a place that is admitted. */
int shell_file_stat(struct open_place *place, const char *path, struct file_info *out,
		    struct error *err);
json_t *shell_file_list(struct open_place *place, const char *path, const char *cursor,
			int64_t limit, struct error *err);
int shell_file_mkdir(struct open_place *place, const char *path, uint32_t mode, bool parents,
		     struct error *err);
int shell_file_rename(struct open_place *place, const char *from, const char *to, bool no_clobber,
		      struct error *err);
int shell_file_remove(struct open_place *place, const char *path, bool recursive,
		      struct error *err);
int shell_file_chmod(struct open_place *place, const char *path, uint32_t mode, struct error *err);

struct shell_reader;
int shell_reader_open(struct open_place *place, const char *path, int64_t offset, int64_t length,
		      struct file_info *info, struct shell_reader **reader, struct error *err);
ssize_t shell_reader_next(struct shell_reader *reader, void *buf, size_t max, struct error *err);
void shell_reader_close(struct shell_reader *reader);

struct shell_writer;
int shell_writer_open(struct open_place *place, const char *path,
		      const struct file_write_options *options, struct shell_writer **writer,
		      struct error *err);
int shell_writer_append(struct shell_writer *writer, const void *data, size_t len,
			struct error *err);
int shell_writer_commit(struct shell_writer *writer, struct file_info *info, struct error *err);
void shell_writer_abandon(struct shell_writer *writer);
