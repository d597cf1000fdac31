// The slider of each picture of step sizes: the picture as it was at that validation.
for (const box of document.querySelectorAll(".alpha")) {
  const slider = box.querySelector("input")
  if (!slider) continue
  const { history, largest } = JSON.parse(box.querySelector(".history").textContent)
  const show = a => a <= 0 ? "·" : a >= 1 ? String(a) : a < 0.0005 ? "<.001" : a.toFixed(3).replace(/^0/, "")
  slider.addEventListener("input", () => {
    const [tasks, alpha] = history[slider.value]
    box.querySelector("output").textContent = tasks.toLocaleString("en") + " tasks"
    for (const cell of box.querySelectorAll("[data-kl]")) {
      const [k, l] = cell.dataset.kl.split(","), a = alpha[k][l]
      const strength = a > 0 ? 0.1 + 0.9 * Math.sqrt(a / largest) : 0
      const tip = cell.firstChild, label = cell.nextSibling
      cell.setAttribute("fill-opacity", strength)
      cell.setAttribute("class", a > 0 ? "heat" : "heat zero")
      tip.textContent = tip.textContent.replace(/: .*/, ": " + a)
      label.textContent = show(a)
      label.setAttribute("class", strength > 0.5 ? "on" : "value")
    }
  })
  box.querySelector(".slider").hidden = false
}
// On paper nothing can be opened.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(d => { d.open = true }))
