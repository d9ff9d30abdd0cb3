/* The tile registers of a processor, in memory of each thread: what the instructions of Intel AMX do, by Intel's manual. What a processor would end the process
   for is kept as an error instead. */

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static _Thread_local uint8_t tiles[8][16][64];
static _Thread_local int configured;
static char error[200];
static int64_t counts[4]; /* of products, configurations, releases, loads */

const char *tile_machine_error(void) { return error; }
int tile_machine_configured(void) { return configured; }
int64_t tile_machine_count(int which) { return counts[which]; }
void tile_machine_reset(void) { error[0] = 0; memset(counts, 0, sizeof counts); configured = 0; }

static int fine(const char *what, int tile) {
    if (!configured) snprintf(error, sizeof error, "%s without a configuration", what);
    else if (tile < 0 || tile > 7) snprintf(error, sizeof error, "%s of tile %d", what, tile);
    else return 1;
    return 0;
}

void emulated_ldtilecfg(const uint8_t *from) {
    int right = from[0] == 1 && (uintptr_t)from % 64 == 0;
    for (int i = 1; i < 16; i++) right &= from[i] == 0;
    for (int i = 0; i < 16; i++) right &= from[16 + 2 * i] == (i < 8 ? 64 : 0) && from[17 + 2 * i] == 0;
    for (int i = 0; i < 16; i++) right &= from[48 + i] == (i < 8 ? 16 : 0);
    if (!right) snprintf(error, sizeof error, "a configuration that is not eight whole tiles");
    memset(tiles, 0, sizeof tiles);
    configured = 1;
    __atomic_fetch_add(&counts[1], 1, __ATOMIC_RELAXED);
}

void emulated_tilerelease(void) {
    memset(tiles, 0x5A, sizeof tiles);
    configured = 0;
    __atomic_fetch_add(&counts[2], 1, __ATOMIC_RELAXED);
}

void emulated_tilezero(int8_t tile) {
    if (fine("tilezero", tile)) memset(tiles[tile], 0, sizeof tiles[tile]);
}

void emulated_tileloadd64(int8_t tile, const uint8_t *from, int64_t stride) {
    __atomic_fetch_add(&counts[3], 1, __ATOMIC_RELAXED);
    if (fine("tileloadd", tile))
        for (int i = 0; i < 16; i++) memcpy(tiles[tile][i], from + i * stride, 64);
}

void emulated_tilestored64(int8_t tile, uint8_t *to, int64_t stride) {
    if (fine("tilestored", tile))
        for (int i = 0; i < 16; i++) memcpy(to + i * stride, tiles[tile][i], 64);
}

static int apart(int8_t c, int8_t a, int8_t b) {
    __atomic_fetch_add(&counts[0], 1, __ATOMIC_RELAXED);
    if (c == a || c == b || a == b) snprintf(error, sizeof error, "a product of tiles that are the same one");
    return fine("a product", a) && fine("a product", b) && fine("a product", c) && !error[0];
}

/* bf16 as a float; numbers below the least normal one count as zero */
static float widened(uint16_t bits) {
    uint32_t word = (uint32_t)((bits & 0x7F80) ? bits : (bits & 0x8000)) << 16;
    float value;
    memcpy(&value, &word, 4);
    return value;
}

void emulated_tdpbf16ps(int8_t c, int8_t a, int8_t b) {
    if (!apart(c, a, b)) return;
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n++) {
            float even = 0, odd = 0, sum;
            for (int k = 0; k < 16; k++) {
                uint16_t left[2], right[2];
                memcpy(left, &tiles[a][m][4 * k], 4);
                memcpy(right, &tiles[b][k][4 * n], 4);
                even += widened(left[0]) * widened(right[0]);
                odd += widened(left[1]) * widened(right[1]);
            }
            memcpy(&sum, &tiles[c][m][4 * n], 4);
            sum += even + odd;
            memcpy(&tiles[c][m][4 * n], &sum, 4);
        }
}

static void bytes(int8_t c, int8_t a, int8_t b, int a_signed, int b_signed) {
    if (!apart(c, a, b)) return;
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n++) {
            uint32_t sum;
            memcpy(&sum, &tiles[c][m][4 * n], 4);
            for (int k = 0; k < 64; k++) {
                uint8_t left = tiles[a][m][k], right = tiles[b][k / 4][4 * n + k % 4];
                sum += (uint32_t)((a_signed ? (int8_t)left : (int)left) * (b_signed ? (int8_t)right : (int)right));
            }
            memcpy(&tiles[c][m][4 * n], &sum, 4);
        }
}

void emulated_tdpbssd(int8_t c, int8_t a, int8_t b) { bytes(c, a, b, 1, 1); }
void emulated_tdpbsud(int8_t c, int8_t a, int8_t b) { bytes(c, a, b, 1, 0); }
void emulated_tdpbusd(int8_t c, int8_t a, int8_t b) { bytes(c, a, b, 0, 1); }
void emulated_tdpbuud(int8_t c, int8_t a, int8_t b) { bytes(c, a, b, 0, 0); }
