// The slider of each table of step sizes: the table as it was at that validation.
for (const box of document.querySelectorAll(".alpha")) {
  const slider = box.querySelector("input")
  if (!slider) continue
  const { history, largest, unit } = JSON.parse(box.querySelector(".history").textContent)
  const show = a => a <= 0 ? "·" : a >= 1 ? String(a) : a < 0.0005 ? "<.001"
    : a.toFixed(3).replace(/^0/, "")
  slider.addEventListener("input", () => {
    const [count, alpha] = history[slider.value]
    box.querySelector("output").textContent = `${count.toLocaleString("en")} ${unit}`
    box.querySelectorAll("tr:has(td)").forEach((row, l) => {
      row.querySelectorAll("td").forEach((cell, k) => {
        const a = alpha[k][l], strength = a > 0 ? 0.1 + 0.9 * Math.sqrt(a / largest) : 0
        cell.textContent = show(a)
        cell.style.setProperty("--s", strength)
        cell.className = strength > 0.7 ? "strong" : ""
      })
    })
  })
  box.querySelector(".slider").hidden = false
}
// On paper nothing can be opened.
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true
})
