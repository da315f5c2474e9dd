/*
 * The terminal this program runs in, while its keys belong to a command somewhere else. Whatever
 * ends this program, the terminal gets its old mode back: by return, by exit, by a signal.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* True when both are one: keys come from it and output goes to it. */
bool terminal_is_here(void);
/* Keys come as they are typed, none of them acts here. False when that is impossible. */
bool terminal_raw(void);
void terminal_restore(void);
void terminal_size(uint16_t *rows, uint16_t *cols);
/* A latch set when the size has changed; -1 on failure. */
int terminal_watch_size(void);
