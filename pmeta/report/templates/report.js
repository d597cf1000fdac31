// The slider of each picture of step sizes: the picture as it was at that validation.
for (const box of document.querySelectorAll(".alpha")) {
  const slider = box.querySelector("input")
  if (!slider) continue
  const { history, largest } = JSON.parse(box.querySelector(".history").textContent)
  const show = a => a <= 0 ? "·" : a >= 1 ? String(a) : a < 0.0005 ? "<.001"
    : a.toFixed(3).replace(/^0/, "")
  slider.addEventListener("input", () => {
    const [tasks, alpha] = history[slider.value]
    box.querySelector("output").textContent = tasks.toLocaleString("en") + " tasks"
    for (const cell of box.querySelectorAll("[data-kl]")) {
      const [k, l] = cell.dataset.kl.split(","), a = alpha[k][l]
      const strength = a > 0 ? 0.1 + 0.9 * Math.sqrt(a / largest) : 0.5
      const tip = cell.querySelector("title"), shape = cell.querySelector("path").style
      const label = cell.nextElementSibling
      shape.fill = a > 0 ? "var(--accent)" : "var(--line)"
      shape.fillOpacity = strength
      tip.textContent = tip.textContent.replace(/: .*/, ": " + a)
      label.textContent = show(a)
      label.style.fill = a <= 0 ? "var(--faint)" : strength > 0.7 ? "var(--page)" : "var(--ink)"
    }
  })
  box.querySelector(".slider").hidden = false
}
// On paper nothing can be opened.
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true
})
