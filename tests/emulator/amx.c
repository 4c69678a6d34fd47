/* AMX on a CPU that lacks it: a SIGILL handler that does what the instruction says, on tiles kept for each thread.

   Decoded are the VEX forms of LDTILECFG, STTILECFG, TILERELEASE, TILEZERO, TILELOADD, TILELOADDT1, TILESTORED and the
   four int8 products; anything else is an illegal instruction as before. What a CPU would refuse (#GP, #UD) is noted,
   the first in words, and the instruction passed over. Source: Intel's manual, volume 2, and its rules of the palette.
*/
#define _GNU_SOURCE
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64, PALETTE = 1 };
enum { NP, P66, PF3, PF2 };

struct config { uint8_t palette, start_row, reserved[14]; uint16_t row_bytes[16]; uint8_t rows[16]; };
_Static_assert(sizeof(struct config) == 64, "LDTILECFG reads 64 bytes");

struct instruction { int length, pp, opcode, mod, reg, rm, vvvv, has_index; uint8_t *address; int64_t stride; };

static _Thread_local struct config config;
static _Thread_local uint8_t tile[TILES][ROWS][ROW_BYTES];

static struct sigaction before;
static char fault[160];
static atomic_int num_faults, num_configs, num_releases, num_products, num_configured;

static void note(const char *format, ...)
{
    if (atomic_fetch_add(&num_faults, 1) == 0) {
        va_list values;
        va_start(values, format);
        vsnprintf(fault, sizeof fault, format, values);
        va_end(values);
    }
}

static int64_t *reg64(ucontext_t *context, int number)
{
    static const int place[16] = { REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                   REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15 };
    return (int64_t *)&context->uc_mcontext.gregs[place[number]];
}

/* Three-byte VEX of map 0F38 with W = 0 and L = 0, ModRM, and what follows it; 0 if it is something else. */
static int decode(ucontext_t *context, struct instruction *i)
{
    const uint8_t *start = (const uint8_t *)context->uc_mcontext.gregs[REG_RIP], *at = start + 5;
    if (start[0] != 0xC4 || (start[1] & 0x1F) != 2 || start[2] & 0x84)
        return 0;
    int not_x = start[1] >> 6 & 1, not_b = start[1] >> 5 & 1, modrm = start[4];
    *i = (struct instruction){ .pp = start[2] & 3, .opcode = start[3], .vvvv = ~start[2] >> 3 & 15, .mod = modrm >> 6,
                               .reg = modrm >> 3 & 7, .rm = modrm & 7 };
    if (i->mod != 3) {
        int base = i->rm | !not_b << 3, is_absolute = i->mod == 0 && i->rm == 5;
        int64_t address = 0;
        if (i->rm == 4) {
            int sib = *at++, index = (sib >> 3 & 7) | !not_x << 3;
            base = (sib & 7) | !not_b << 3;
            i->has_index = index != 4;
            if (i->has_index)
                i->stride = *reg64(context, index) << (sib >> 6);
            is_absolute = i->mod == 0 && (sib & 7) == 5;
        }
        if (!is_absolute)
            address = *reg64(context, base);
        if (i->mod == 1)
            address += (int8_t)*at++;
        if (i->mod == 2 || is_absolute) {
            int32_t moved;
            memcpy(&moved, at, 4);
            address += moved, at += 4;
        }
        if (is_absolute && i->rm == 5)
            address += (int64_t)at;
        i->address = (uint8_t *)address;
    }
    i->length = (int)(at - start);
    return 1;
}

static int all_zero(const void *bytes, int count)
{
    for (const uint8_t *at = bytes; count--; at++)
        if (*at)
            return 0;
    return 1;
}

static void release(void)
{
    if (config.palette)
        atomic_fetch_sub(&num_configured, 1);
    memset(&config, 0, sizeof config);
    memset(tile, 0, sizeof tile);
}

static void configure(const uint8_t *address)
{
    struct config next;
    memcpy(&next, address, sizeof next);
    if (next.palette > PALETTE)
        return note("#GP ldtilecfg: palette %d", next.palette);
    if (next.palette == PALETTE) {
        if (next.start_row || !all_zero(next.reserved, 14) || !all_zero(next.row_bytes + TILES, 2 * TILES)
            || !all_zero(next.rows + TILES, TILES))
            return note("#GP ldtilecfg: reserved bytes, or a first row, not zero");
        for (int t = 0; t < TILES; t++)
            if (next.row_bytes[t] > ROW_BYTES || next.rows[t] > ROWS || !next.row_bytes[t] != !next.rows[t])
                return note("#GP ldtilecfg: tile %d of %d rows of %d bytes", t, next.rows[t], next.row_bytes[t]);
    }
    release();
    config = next;
    atomic_fetch_add(&num_configs, 1);
    if (next.palette)
        atomic_fetch_add(&num_configured, 1);
}

static int is_usable(const char *name, int t)
{
    if (config.palette && t < TILES && config.rows[t] && config.row_bytes[t] % 4 == 0)
        return 1;
    note("#UD %s: tile %d of %d rows of %d bytes, palette %d", name, t, config.rows[t & 7], config.row_bytes[t & 7],
         config.palette);
    return 0;
}

static void move(const struct instruction *i, int is_load)
{
    const char *name = is_load ? "tileloadd" : "tilestored";
    if (!is_usable(name, i->reg))
        return;
    if (i->rm != 4)
        return note("#UD %s without a SIB byte", name);
    for (int row = 0; row < ROWS; row++) {
        uint8_t *memory = i->address + row * i->stride;
        if (is_load)
            memset(tile[i->reg][row], 0, ROW_BYTES);
        if (row < config.rows[i->reg])
            memcpy(is_load ? tile[i->reg][row] : memory, is_load ? memory : tile[i->reg][row], config.row_bytes[i->reg]);
    }
}

static void multiply(const struct instruction *i)
{
    int c = i->reg, a = i->rm, b = i->vvvv;
    int a_signed = i->pp == PF2 || i->pp == PF3, b_signed = i->pp == PF2 || i->pp == P66;
    if (!is_usable("product", c) || !is_usable("product", a) || !is_usable("product", b))
        return;
    if (c == a || c == b || a == b)
        return note("#UD product: tiles %d, %d and %d are not three", c, a, b);
    int m = config.rows[a], k = config.rows[b], n = config.row_bytes[b] / 4;
    if (config.rows[c] != m || config.row_bytes[c] != n * 4 || config.row_bytes[a] != k * 4)
        return note("#UD product: %dx%d bytes from %dx%d and %dx%d", config.rows[c], config.row_bytes[c], m,
                    config.row_bytes[a], k, config.row_bytes[b]);
    atomic_fetch_add(&num_products, 1);
    for (int row = 0; row < m; row++)
        for (int column = 0; column < n; column++) {
            uint32_t sum;
            memcpy(&sum, &tile[c][row][4 * column], 4);
            for (int byte = 0; byte < 4 * k; byte++) {
                uint8_t x = tile[a][row][byte], w = tile[b][byte / 4][4 * column + byte % 4];
                sum += (uint32_t)((a_signed ? (int8_t)x : x) * (b_signed ? (int8_t)w : w));
            }
            memcpy(&tile[c][row][4 * column], &sum, 4);
        }
}

static int execute(const struct instruction *i)
{
    int is_memory = i->mod != 3;
    if (i->opcode == 0x5E && !is_memory)
        return multiply(i), 1;
    if (i->vvvv)
        return 0;
    if (i->opcode == 0x4B && is_memory && i->pp != NP)
        return move(i, i->pp != PF3), 1;
    if (i->opcode != 0x49)
        return 0;
    if (is_memory && i->reg == 0 && i->pp == NP)
        return configure(i->address), 1;
    if (is_memory && i->reg == 0 && i->pp == P66)
        return memcpy(i->address, &config, sizeof config), 1;
    if (!is_memory && i->pp == NP && i->reg == 0 && i->rm == 0)
        return atomic_fetch_add(&num_releases, 1), release(), 1;
    if (!is_memory && i->pp == PF2 && i->rm == 0)
        return is_usable("tilezero", i->reg) ? memset(tile[i->reg], 0, sizeof tile[0]), 1 : 1;
    return 0;
}

static void handle(int signal, siginfo_t *info, void *context_)
{
    ucontext_t *context = context_;
    struct instruction i;
    (void)info;
    if (decode(context, &i) && execute(&i))
        context->uc_mcontext.gregs[REG_RIP] += i.length;
    else
        sigaction(signal, &before, NULL); /* and the instruction is met again */
}

void install(void)
{
    struct sigaction action = { .sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_NODEFER };
    num_faults = num_configs = num_releases = num_products = 0;
    fault[0] = 0;
    sigaction(SIGILL, &action, &before);
}

void uninstall(void) { sigaction(SIGILL, &before, NULL); }

const char *first_fault(void) { return fault; }

/* configurations loaded, releases, products done, threads that hold a configuration now */
void counts(int32_t out[4])
{
    out[0] = num_configs, out[1] = num_releases, out[2] = num_products, out[3] = num_configured;
}
