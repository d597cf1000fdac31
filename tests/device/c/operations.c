/* The operations of MobileNetV3 and EfficientNet against finite differences, as gradients.c does
 * for the others: curved activations, products, layer norm, windows that end outside. */
#include "differences.h"
#include <stdlib.h>
#include <string.h>

#define MAX 4000

static float x[MAX], x2[MAX], s[MAX], s2[MAX], v[MAX], y[MAX], r[MAX], g[MAX], kept[MAX];

/* Numbers from -4 to 4, past the kinks of hardswish and hardsigmoid at -3 and 3. */
static double curve_loss(float h, int n, int kind)
{
    moved(x2, x, v, h, n);
    pmeta_curve(x2, NULL, (size_t)n, kind);
    return dot(x2, r, n);
}

static void check_curve(const char *name, int kind)
{
    const int n = 800;
    const float h = 0.004f;
    fill_apart(x, n, -4.0f);
    fill(r, n), fill(v, n);
    const double numeric = (curve_loss(h, n, kind) - curve_loss(-h, n, kind)) / (2 * (double)h);
    memcpy(x2, x, sizeof x);
    pmeta_curve(x2, kept, (size_t)n, kind);
    memcpy(g, r, sizeof r);
    pmeta_curve_bw(g, kept, (size_t)n, kind);
    expect(name, numeric, dot(g, v, n), 1.0, 1e-3);
}

static void check_hardsigmoid(void)
{
    static unsigned char mask[100];
    const int n = 800;
    const float h = 0.004f;
    double side[2];
    fill_apart(x, n, -4.0f);
    fill(r, n), fill(v, n);
    for (int i = 0; i < 2; i++) {
        moved(x2, x, v, i ? -h : h, n);
        pmeta_act(x2, NULL, (size_t)n, PMETA_HARDSIGMOID, 0.0f);
        side[i] = dot(x2, r, n);
    }
    pmeta_act(x, mask, (size_t)n, PMETA_HARDSIGMOID, 0.0f);
    memcpy(g, r, sizeof r);
    pmeta_act_bw(g, mask, (size_t)n, PMETA_HARDSIGMOID, 0.0f);
    expect("hardsigmoid", (side[0] - side[1]) / (2 * (double)h), dot(g, v, n), 1.0, 2e-3);
}

static void check_far_out(void)
{
    const float far[6] = {-1e30f, -200.0f, -90.0f, 90.0f, 200.0f, 1e30f};
    for (int kind = 0; kind <= PMETA_HARDSWISH; kind++) {
        memcpy(x, far, sizeof far);
        pmeta_curve(x, kept, 6, kind);
        for (int i = 0; i < 6; i++) {
            const double high = kind == PMETA_SIGMOID ? 1.0 : far[i];
            expect("far out", i < 3 ? 0.0 : high, x[i], 1.0, 1e-6);
            g[i] = 1.0f;
        }
        pmeta_curve_bw(g, kept, 6, kind);
        for (int i = 0; i < 6; i++)
            expect("slope far out", kind != PMETA_SIGMOID && i > 2, g[i], 1.0, 1e-6);
    }
}

static double product_loss(const float *a, const float *b, int factors, int each)
{
    pmeta_mul(y, a, b, (size_t)factors, (size_t)each);
    return dot(y, r, factors * each);
}

/* A product is linear in each factor: h = 0.5 has no truncation error. */
static void check_mul(int factors, int each)
{
    const int n = factors * each;
    const float h = 0.5f;
    fill(x, n), fill(s, factors), fill(r, n), fill(v, n);
    moved(x2, x, v, h, n);
    double up = product_loss(x2, s, factors, each);
    moved(x2, x, v, -h, n);
    const double by_x = up - product_loss(x2, s, factors, each);
    moved(s2, s, v, h, factors);
    up = product_loss(x, s2, factors, each);
    moved(s2, s, v, -h, factors);
    const double by_s = up - product_loss(x, s2, factors, each);
    pmeta_mul_bw(g, r, x, (size_t)factors, (size_t)each, 0);
    expect("product, factors", by_s, dot(g, v, factors), 1.0, 1e-5);
    pmeta_mul_bw(g, r, x, (size_t)factors, (size_t)each, 1);
    expect("product, factors added", 2 * by_s, dot(g, v, factors), 1.0, 1e-5);
    memcpy(g, r, sizeof r);
    pmeta_mul(g, g, s, (size_t)factors, (size_t)each);
    expect("product, in place", by_x, dot(g, v, n), 1.0, 1e-5);
}

static double norm_loss(const float *in, const float *w, const float *b, int c, int rows)
{
    memcpy(g, in, sizeof(float) * (size_t)(c * rows));
    pmeta_layer_norm(g, y, w, b, NULL, c, rows, 1e-5f);
    return dot(y, r, c * rows);
}

static void check_layer_norm(int c, int rows)
{
    static float rstd[64], mean[MAX], sums[MAX], acc[2 * MAX], bias[MAX];
    const int n = c * rows;
    const float h = 0.01f;
    fill(x, n), fill(s, c), fill(bias, c), fill(r, n), fill(v, n);
    moved(x2, x, v, h, n);
    double up = norm_loss(x2, s, bias, c, rows);
    moved(x2, x, v, -h, n);
    const double by_x = (up - norm_loss(x2, s, bias, c, rows)) / (2 * (double)h);
    moved(s2, s, v, 0.5f, c);
    up = norm_loss(x, s2, bias, c, rows);
    moved(s2, s, v, -0.5f, c);
    const double by_w = up - norm_loss(x, s2, bias, c, rows);
    memcpy(x2, x, sizeof x);
    pmeta_layer_norm(x2, y, s, bias, rstd, c, rows, 1e-5f);
    pmeta_layer_norm_bw(x2, r, s, rstd, mean, sums, c, rows, 1);
    expect("layer norm, input", by_x, dot(x2, v, n), 1.0, 2e-3);
    memset(acc, 0, sizeof acc);
    pmeta_norm_acc(acc, acc + MAX, mean, sums, NULL, NULL, c, rows);
    expect("layer norm, weight", by_w, dot(acc, v, c), 1.0, 1e-4);
    double by_b = 0.0;
    for (int i = 0; i < n; i++) by_b += (double)r[i] * v[i % c];
    expect("layer norm, bias", by_b, dot(acc + MAX, v, c), 1.0, 1e-4);
}

/* One window more than whole ones, which ends outside. */
static void check_ceil(int max, int count_pad)
{
    static unsigned char index[MAX];
    pmeta_geom q = geometry(2, 8, 10, 2, 3, 3, 2, 0, 1, 1);
    q.ho++, q.wo++;
    const int nx = q.c_in * q.h * q.w, ny = q.c_in * q.ho * q.wo;
    const float h = max ? 0.002f : 0.5f;
    double side[2];
    fill_apart(x, nx, -3.0f);
    fill(r, ny), fill(v, nx);
    for (int i = 0; i < 2; i++) {
        moved(x2, x, v, i ? -h : h, nx);
        if (max)
            pmeta_maxpool(y, x2, NULL, NULL, &q, q.c_in);
        else
            pmeta_avgpool(y, x2, &q, q.c_in, count_pad);
        side[i] = dot(y, r, ny);
    }
    if (max) {
        pmeta_maxpool(y, x, index, NULL, &q, q.c_in);
        pmeta_maxpool_bw(g, r, index, &q, q.c_in);
    } else {
        pmeta_avgpool_bw(g, r, &q, q.c_in, count_pad);
    }
    expect(max ? "max-pool, ceil" : "average pool, ceil", (side[0] - side[1]) / (2 * (double)h),
           dot(g, v, nx), 1.0, max ? 5e-3 : 1e-4);
}

int main(void)
{
    check_curve("sigmoid", PMETA_SIGMOID);
    check_curve("SiLU", PMETA_SILU);
    check_curve("hardswish", PMETA_HARDSWISH);
    check_hardsigmoid();
    check_far_out();
    check_mul(12, 49);
    check_mul(7, 1);
    check_mul(1, 100);
    check_layer_norm(33, 1);
    check_layer_norm(20, 9);
    check_ceil(1, 0);
    check_ceil(0, 0);
    check_ceil(0, 1);
    printf("%d checks, %d failures\n", checks, failures);
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
