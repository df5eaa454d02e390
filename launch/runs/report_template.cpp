#include "launch/runs/report_page.h"

namespace ashlar::runs {

const char* const kReportTemplate = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Ashlar: report</title>
<link rel="icon" href="data:,">
<style>
:root{color-scheme:light dark;--page:#fff;--text:#1c1c1c;--faint:#8885;--panel:#f5f5f3}
@media(prefers-color-scheme:dark){:root{--page:#161616;--text:#e4e4e4;--panel:#202020}}
body{background:var(--page);color:var(--text);font:14px/1.45 sans-serif;margin:1.5rem auto;max-width:1180px;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.2rem .6rem;border-bottom:1px solid var(--faint);
vertical-align:top;overflow-wrap:anywhere}tr.differs td{background:var(--panel);font-weight:600}
.text{white-space:pre-wrap;font-family:monospace}
small{opacity:.75;display:block;font-weight:400}
#charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(520px,1fr));gap:1rem}
figure{margin:0;background:var(--panel);padding:.6rem;border-radius:6px}figcaption{display:flex;justify-content:space-between}
svg{width:100%;display:block}svg text{fill:var(--text);font-size:11px}.grid{stroke:var(--faint);fill:none}
.line{fill:none;stroke-width:1.5}.hover{stroke:var(--text);stroke-dasharray:3 3}
.note{min-height:1.4em;font-size:12px}button,select{font:inherit;margin-right:.4rem}
.key{display:inline-block;width:.9em;height:.9em;border-radius:2px;margin-right:.4em}
</style></head><body>
<h1>Runs</h1><div id="legend"></div><table id="runs"></table>
<h2>Curves</h2><p>x axis <select id="x"><option value="0">steps<option value="1">tokens<option value="2">time of steps (s)
</select> <label>mean of <select id="smooth"><option>1<option>5<option>20<option>100</select> points</label></p>
<div id="charts"></div>
<div id="more"></div>
<h2>Configuration</h2><p><label><input type="checkbox" id="only"> only keys that differ</label></p><table id="config"></table>
<h2>Events</h2><table id="events"></table>
<script type="application/json" id="data">@DATA@</script>
<script>
"use strict";
const data=JSON.parse(document.getElementById("data").textContent),runs=data.runs;
const colours=["#0072b2","#d55e00","#009e73","#cc79a7","#e69f00","#56b4e9","#8a8a00"];
const colour=i=>colours[i%colours.length],hidden=new Set(),logs=new Set(),id=n=>document.getElementById(n);
function make(name,attributes,parent,text){
  const svg=["svg","path","text","circle","line"].includes(name);
  const e=svg?document.createElementNS("http://www.w3.org/2000/svg",name):document.createElement(name);
  for(const k in attributes)e.setAttribute(k,attributes[k]);
  if(text!==undefined)e.textContent=text;
  if(parent)parent.append(e);
  return e;
}
function short(v){
  const a=Math.abs(v);
  if(a===0)return"0";
  if(a>=1e9)return+(v/1e9).toPrecision(4)+"G";
  if(a>=1e6)return+(v/1e6).toPrecision(4)+"M";
  if(a>=1e4)return+(v/1e3).toPrecision(4)+"k";
  return a<1e-3?v.toExponential(1):String(+v.toPrecision(4));
}
function ticks(low,high,log){
  const found=[];
  if(log)for(const digits of [[1],[1,3],[1,2,5],[1,2,3,4,5,6,7,8,9]]){
    found.length=0;
    for(let e=Math.floor(Math.log10(low));10**e<=high;e++)
      for(const d of digits){const v=d*10**e;if(v>=low&&v<=high)found.push(v);}
    if(found.length>=3)return found;
  }
  found.length=0;
  const rough=(high-low)/5,power=10**Math.floor(Math.log10(rough)),step=[1,2,5,10].find(s=>s*power>=rough*.999)*power;
  for(let k=Math.ceil(low/step-1e-9);k*step<=high+1e-9*step;k++)found.push(k*step);
  return found;
}
function points(run,key,x,smooth,log){
  const c=run.series&&run.series[key],list=[];
  if(!c)return list;
  for(let i=0;i<c[3].length;i++){
    const window=c[3].slice(Math.max(0,i-smooth+1),i+1),y=window.reduce((a,b)=>a+b,0)/window.length;
    if(!log||y>0)list.push([c[x][i],y]);
  }
  return list;
}
function draw(figure,key){
  const svg=figure.querySelector("svg"),note=figure.querySelector(".note"),log=logs.has(key),x=+id("x").value;
  svg.replaceChildren();
  const shown=runs.map((run,i)=>({run,i,line:points(run,key,x,+id("smooth").value,log),
    marks:key==="loss"?points(run,"val_loss",x,1,log):[]})).filter(s=>!hidden.has(s.i)&&s.line.length);
  const all=shown.flatMap(s=>s.line.concat(s.marks));
  if(!all.length){note.textContent=log?"no positive value":"no value";return;}
  let [x0,x1,y0,y1]=[Infinity,-Infinity,Infinity,-Infinity];
  for(const p of all){x0=Math.min(x0,p[0]);x1=Math.max(x1,p[0]);y0=Math.min(y0,p[1]);y1=Math.max(y1,p[1]);}
  if(x0===x1){x0-=1;x1+=1;}
  if(y1-y0<=1e-12*Math.abs(y1)){const by=y1===0?1:Math.abs(y1)*.05;y0-=by;y1+=by;}
  const W=520,H=240,L=58,R=12,T=8,B=24;
  const px=v=>L+(v-x0)/(x1-x0)*(W-L-R),share=v=>log?Math.log(v/y0)/Math.log(y1/y0):(v-y0)/(y1-y0);
  const py=v=>T+(1-share(v))*(H-T-B);
  for(const t of ticks(y0,y1,log)){
    make("path",{class:"grid",d:`M${L} ${py(t)}H${W-R}`},svg);
    make("text",{x:L-6,y:py(t)+4,"text-anchor":"end"},svg,short(t));
  }
  for(const t of ticks(x0,x1,false))make("text",{x:px(t),y:H-6,"text-anchor":"middle"},svg,short(t));
  for(const s of shown){
    const d=s.line.map((p,k)=>(k?"L":"M")+px(p[0]).toFixed(1)+" "+py(p[1]).toFixed(1)).join("");
    make("path",{class:"line",stroke:colour(s.i),d},svg);
    for(const p of s.marks)make("circle",{cx:px(p[0]),cy:py(p[1]),r:3.5,fill:colour(s.i)},svg);
    if(s.line.length===1)make("circle",{cx:px(s.line[0][0]),cy:py(s.line[0][1]),r:2.5,fill:colour(s.i)},svg);
  }
  const cursor=make("line",{class:"hover",y1:T,y2:H-B,x1:-9,x2:-9},svg);
  svg.onmousemove=event=>{
    const box=svg.getBoundingClientRect(),v=x0+((event.clientX-box.left)/box.width*W-L)/(W-L-R)*(x1-x0);
    cursor.setAttribute("x1",px(v));cursor.setAttribute("x2",px(v));
    note.textContent=short(v)+"  "+shown.map(s=>{
      const near=s.line.reduce((a,b)=>Math.abs(b[0]-v)<Math.abs(a[0]-v)?b:a);
      return s.run.name+": "+(+near[1].toPrecision(5));
    }).join("  ");
  };
  svg.onmouseleave=()=>{cursor.setAttribute("x1",-9);cursor.setAttribute("x2",-9);note.textContent="";};
}
const figures=[];
function drawAll(){for(const [figure,key] of figures)draw(figure,key);}
for(const [key,title] of data.charts){
  if(!runs.some(run=>run.series&&run.series[key]))continue;
  const figure=make("figure",{},id("charts")),caption=make("figcaption",{},figure);
  make("span",{},caption,title);
  const log=make("button",{},caption,"log");
  log.onclick=()=>{logs.has(key)?logs.delete(key):logs.add(key);log.textContent=logs.has(key)?"linear":"log";draw(figure,key);};
  make("svg",{viewBox:"0 0 520 240"},figure);
  make("div",{class:"note"},figure);
  figures.push([figure,key]);
}
runs.forEach((run,i)=>{
  const label=make("label",{},id("legend")),box=make("input",{type:"checkbox"},label);
  box.checked=true;
  box.onchange=()=>{box.checked?hidden.delete(i):hidden.add(i);drawAll();};
  make("span",{class:"key",style:"background:"+colour(i)},label);
  label.append(run.name+" ");
});
function row(table,cells,kind="td",style=""){
  const r=make("tr",{class:style},table);
  return cells.map(text=>make(kind,{},r,text));
}
row(id("runs"),["run","parameters","layout","step","checkpoints","state"],"th");
for(const run of runs){
  const step=run.step+(run.steps?"/"+run.steps:"");
  const cells=row(id("runs"),[run.name,run.parameters?short(run.parameters):"-",run.layout||"-",step,run.checkpoints,run.state]);
  make("small",{},cells[0],run.path);
  for(const problem of run.problems)make("small",{},cells[0],problem);
}
function section(title,note,heads,rows){
  if(!rows.length)return [];
  make("h2",{},id("more"),title);
  if(note)make("p",{},id("more"),note);
  const table=make("table",{},id("more"));
  row(table,heads,"th");
  return rows.map(cells=>row(table,cells));
}
const all=(key,cells)=>runs.flatMap(run=>(run[key]||[]).map(x=>cells(run,x)));
section("Plan and measured","Medians over the steps since the last start, and the highest memory.",
  ["run","","planned","measured","difference"],all("plan",(run,p)=>[run.name,...p]));
const seconds=v=>v<100?+v.toPrecision(3)+" s":Math.round(v)+" s";
section("Time",null,["run","steps","of it, wait for data","saves","validations"],runs.filter(r=>r.spent.steps>0).map(run=>{
  const t=run.spent,of=(s,n)=>n?seconds(s)+" in "+n:"-";
  return [run.name,seconds(t.steps),seconds(t.data_wait)+" ("+(100*t.data_wait/t.steps).toPrecision(2)+"%)",
    of(t.saves,t.num_saves),of(t.validations,t.num_validations)];
}));
const samples=all("samples",(run,s)=>({run,s}));
section("Samples","Continuations of log.sample at validations; the prompt is bold.",["run","step","text"],
  samples.map(x=>[x.run.name,x.s.step,""])).forEach((cells,i)=>{
  cells[2].className="text";
  make("b",{},cells[2],samples[i].s.prompt);
  cells[2].append(samples[i].s.text);
});
const several=runs.filter(run=>run.num_ranks>1);
section("Ranks",several.some(r=>r.num_ranks>r.ranks.length)?"The first 64 ranks of each run.":null,
  ["run","rank","stage (pipeline)","replica (data)","expert","tensor"],
  several.flatMap(run=>run.ranks.map(c=>[run.name,...c])));
function drawConfig(){
  id("config").replaceChildren();
  row(id("config"),["key",...runs.map(r=>r.name)],"th");
  for(const k of data.keys){
    const differs=new Set(k.values).size>1;
    if(id("only").checked&&!differs)continue;
    const cells=row(id("config"),[k.key,...k.values],"td",differs?"differs":"");
    k.who.forEach((who,i)=>{if(who)make("small",{},cells[i+1],who);});
  }
}
row(id("events"),["time (UTC)","run","event","step",""],"th");
runs.flatMap(run=>(run.events||[]).map(e=>({...e,run:run.name}))).sort((a,b)=>a.time-b.time).forEach(e=>
  row(id("events"),[new Date(e.time*1000).toISOString().replace("T"," ").slice(0,19),e.run,e.kind,e.step<0?"":e.step,e.text]));
id("x").onchange=drawAll;id("smooth").onchange=drawAll;id("only").onchange=drawConfig;
drawAll();drawConfig();
</script></body></html>
)html";

}  // namespace ashlar::runs
