"""Attention in many forms, and what only looks like it, as linalg on tensors.

attention_forms.py forms|look-alikes|NAME prints a module with one function a form; with NAME, the one
form of that name as @main.
"""
import sys


class M:
    """The text of a function, op by op; values are known by their names."""

    def __init__(s): s.lines=[]; s.args=[]; s.n=0; s.t={}
    def arg(s,shape,el='f32'):
        v='%%arg%d'%len(s.args); ty=T(shape,el); s.args.append('%s: %s'%(v,ty)); s.t[v]=(shape,el); return v
    def new(s): s.n+=1; return '%%v%d'%s.n
    def op(s,text): s.lines.append('    '+text)
    def const(s,val,el='f32'):
        v=s.new(); s.op('%s = arith.constant %s'%(v,val)+(' : '+el if el!='i1' else '')); s.t[v]=(None,el); return v
    def empty(s,shape,el): v=s.new(); s.op('%s = tensor.empty() : %s'%(v,T(shape,el))); s.t[v]=(shape,el); return v
    def fill(s,val,shape,el='f32'):
        c=s.const(val,el); e=s.empty(shape,el); v=s.new()
        s.op('%s = linalg.fill ins(%s : %s) outs(%s : %s) -> %s'%(v,c,el,e,T(shape,el),T(shape,el))); s.t[v]=(shape,el); return v
    def generic(s,ins,maps,shape,el,body,red=0,init=None,loops=None,omap=None):
        """ins values; maps lists of exprs as strings over d0..; body(list of in names,out)->(lines,yield)"""
        nl=loops or len(shape)
        dims='('+', '.join('d%d'%i for i in range(nl))+')'
        o=init or s.empty(shape,el)
        omap=omap or ['d%d'%i for i in range(len(shape))]
        am=', '.join('affine_map<%s -> (%s)>'%(dims,', '.join(m)) for m in maps+[omap])
        its=', '.join('"reduction"' if i>=nl-red else '"parallel"' for i in range(nl))
        v=s.new(); names=['%%i%d'%i for i in range(len(ins))]
        bl,y=body(names,'%o')
        inst=' ins(%s : %s)'%(', '.join(ins),', '.join(T(*s.t[i]) for i in ins)) if ins else ''
        s.op('%s = linalg.generic {indexing_maps = [%s], iterator_types = [%s]}%s outs(%s : %s) {'%(v,am,its,inst,o,T(shape,el)))
        s.op('^bb0(%s):'%', '.join(['%s: %s'%(n,s.t[i][1]) for n,i in zip(names,ins)]+['%%o: %s'%el]))
        for l in bl: s.op('  '+l)
        s.op('  linalg.yield %s : %s'%(y,el)); s.op('} -> '+T(shape,el)); s.t[v]=(shape,el); return v
    def ident(s,shape): return ['d%d'%i for i in range(len(shape))]
    def ew(s,op,*ins,el=None,maps=None,shape=None,attr=''):
        shape=shape or s.t[ins[0]][0]; el0=s.t[ins[0]][1]; el=el or el0
        maps=maps or [s.bmap(s.t[i][0],shape) for i in ins]
        cast=op.split()[0] in('arith.extf','arith.truncf','arith.uitofp','arith.sitofp','arith.extui','arith.trunci')
        ty=(el0+' to '+el) if cast else ((','.join(['i1',el][1:]) if 0 else el) if 'select' in op else el0)
        return s.generic(list(ins),maps,shape,el,lambda n,o:(['%%r = %s %s : %s'%(op,', '.join(n),ty)],'%r'))
    def bmap(s,a,shape):
        off=len(shape)-len(a); return ['0' if (x==1 and shape[off+i]!=1) else 'd%d'%(off+i) for i,x in enumerate(a)]
    def scalar(s,op,x,c,el=None,flip=False):
        shape,el0=s.t[x]
        return s.generic([x],[s.ident(shape)],shape,el or el0,lambda n,o:(['%%r = %s %s, %s : %s'%((op,c,n[0],el0) if flip else (op,n[0],c,el0))],'%r'))
    def transpose(s,x,perm):
        shape,el=s.t[x]; ns=[shape[p] for p in perm]; e=s.empty(ns,el); v=s.new()
        s.op('%s = linalg.transpose ins(%s : %s) outs(%s : %s) permutation = %s'%(v,x,T(shape,el),e,T(ns,el),perm)); s.t[v]=(ns,el); return v
    def reshape(s,x,groups,shape):
        sh,el=s.t[x]; v=s.new(); g=str(groups)
        if len(shape)<len(sh): s.op('%s = tensor.collapse_shape %s %s : %s into %s'%(v,x,g,T(sh,el),T(shape,el)))
        else: s.op('%s = tensor.expand_shape %s %s output_shape %s : %s into %s'%(v,x,g,shape,T(sh,el),T(shape,el)))
        s.t[v]=(shape,el); return v
    def contract(s,a,b,am,bm,shape,loops,el='f32',red=1,div=None):
        init=s.fill('0.0',shape,el)
        ea=s.t[a][1]
        ex=(lambda n,k:(['%%e%d = arith.extf %s : %s to %s'%(k,n,ea,el)],'%%e%d'%k)) if ea!=el else (lambda n,k:([],n))
        def body(n,o):
            l0,x=ex(n[0],0); l1,y=ex(n[1],1)
            return l0+l1+['%%p = arith.mulf %s, %s : %s'%(x,y,el),'%%r = arith.addf %%o, %%p : %s'%el],'%r'
        return s.generic([a,b],[am,bm],shape,el,body,red=red,init=init,loops=loops)
    def reduce(s,x,op,init):
        shape,el=s.t[x]; i=s.fill(init,shape[:-1],el)
        return s.generic([x],[s.ident(shape)],shape[:-1],el,lambda n,o:(['%%r = %s %s, %s : %s'%(op,n[0],o,el)],'%r'),red=1,init=i,loops=len(shape))
    def keepdim(s,x):
        shape,el=s.t[x]; r=len(shape); return s.reshape(x,[[i] for i in range(r-1)]+[[r-1,r]],shape+[1])
    def softmax(s,x):
        m=s.keepdim(s.reduce(x,'arith.maximumf','0xFF800000')); d=s.ew('arith.subf',x,m); e=s.ew('math.exp',d)
        l=s.keepdim(s.reduce(e,'arith.addf','0.0')); return s.ew('arith.divf',e,l)
    def index(s,shape,dim,el='i64'):
        return s.generic([],[],shape,el,lambda n,o:(['%%x = linalg.index %d : index'%dim,'%%r = arith.index_cast %%x : index to %s'%el],'%r'))
    def text(s,*rets):
        tys=', '.join(T(*s.t[r]) for r in rets); rt=tys if len(rets)==1 else '('+tys+')'
        return 'func.func @NAME(%s) -> %s {\n%s\n    return %s : %s\n}\n'%(', '.join(s.args),rt,'\n'.join(s.lines),', '.join(rets),tys)
def T(shape,el):
    if shape is None: return el
    return 'tensor<%s>'%('x'.join([str(x) for x in shape]+[el]))
B,H,N,NK,D=2,4,16,16,8
def qk(m,q,k,el='f32'):
    b,h,n,d=m.t[q][0]; nk=m.t[k][0][2]
    return m.contract(q,k,['d0','d1','d2','d4'],['d0','d1','d3','d4'],[b,h,n,nk],5,el)
def pv(m,p,v,el='f32'):
    b,h,n,nk=m.t[p][0]; d=m.t[v][0][3]
    return m.contract(p,v,['d0','d1','d2','d4'],['d0','d1','d4','d3'],[b,h,n,d],5,el)
def qkv(m,n=N,nk=NK,el='f32',h=H):
    return m.arg([B,h,n,D],el),m.arg([B,h,nk,D],el),m.arg([B,h,nk,D],el)
def sel(m,c,a,low,shows=True):
    l=m.const(low,m.t[a][1]); sh,el=m.t[a]
    return m.generic([c,a],[m.bmap(m.t[c][0],sh),m.ident(sh)],sh,el,lambda n,o:(['%%r = arith.select %s, %s, %s : %s'%((n[0],n[1],l,el) if shows else (n[0],l,n[1],el))],'%r'))
def cmpi(m,pred,a,b,shape):
    el=m.t[a][1]
    return m.generic([a,b],[m.bmap(m.t[a][0],shape),m.bmap(m.t[b][0],shape)],shape,'i1',lambda n,o:(['%%r = arith.cmpi %s, %s, %s : %s'%(pred,n[0],n[1],el)],'%r'))
cases={}
def case(f): cases[f.__name__]=f; return f
@case
def alibi():
    m=M(); q,k,v=qkv(m); s=qk(m,q,k); sc=m.const('0.125'); s=m.scalar('arith.mulf',s,sc)
    qi=m.index([N,NK],0); ki=m.index([N,NK],1); d=m.ew('arith.subi',ki,qi); df=m.ew('arith.sitofp',d,el='f32')
    h=m.index([H],0); hf=m.ew('arith.sitofp',h,el='f32'); c=m.const('-2.0'); hf=m.scalar('arith.mulf',hf,c); two=m.const('2.0'); sl=m.scalar('math.powf',hf,two,flip=True)
    sl=m.reshape(sl,[[0,1,2]],[H,1,1]); b=m.ew('arith.mulf',sl,df,shape=[H,N,NK],maps=[['d0','0','0'],['d1','d2']])
    s=m.ew('arith.addf',s,b); cm=cmpi(m,'sle',ki,qi,[N,NK]); s=sel(m,cm,s,'0xFF800000')
    return m.text(pv(m,m.softmax(s),v))
@case
def lengths():
    m=M(); q,k,v=qkv(m); L=m.arg([B],'i32'); s=qk(m,q,k); ki=m.index([NK],0,'i32')
    L2=m.reshape(L,[[0,1,2,3]],[B,1,1,1]); c=cmpi(m,'slt',ki,L2,[B,1,1,NK]); s=sel(m,c,s,'-1.0e30')
    return m.text(pv(m,m.softmax(s),v))
@case
def offset():
    m=M(); q,k,v=qkv(m,n=4); P=m.arg([],'i32'); s=qk(m,q,k); ki=m.index([NK],0,'i32'); qi=m.index([4],0,'i32')
    p=m.generic([qi,P],[['d0'],[]],[4],'i32',lambda n,o:(['%%r = arith.addi %s, %s : i32'%tuple(n)],'%r'))
    p=m.reshape(p,[[0,1]],[4,1]); c=cmpi(m,'sle',ki,p,[4,NK]); s=sel(m,c,s,'0xFF800000')
    return m.text(pv(m,m.softmax(s),v))
@case
def prefix():
    m=M(); q,k,v=qkv(m); s=qk(m,q,k); qi=m.index([N,NK],0); ki=m.index([N,NK],1)
    c=cmpi(m,'sle',ki,qi,[N,NK]); five=m.fill('5',[N,NK],'i64'); d=cmpi(m,'slt',ki,five,[N,NK]); c=m.ew('arith.ori',c,d); s=sel(m,c,s,'0xFF800000')
    return m.text(pv(m,m.softmax(s),v))
@case
def sink_window():
    m=M(); q,k,v=qkv(m); s=qk(m,q,k); qi=m.index([N,NK],0); ki=m.index([N,NK],1)
    c=cmpi(m,'sle',ki,qi,[N,NK]); d=m.ew('arith.subi',qi,ki); w=m.fill('4',[N,NK],'i64'); e=cmpi(m,'slt',d,w,[N,NK]); t=m.fill('2',[N,NK],'i64'); f=cmpi(m,'slt',ki,t,[N,NK])
    c=m.ew('arith.andi',c,m.ew('arith.ori',e,f)); s=sel(m,c,s,'0xFF800000')
    return m.text(pv(m,m.softmax(s),v))
@case
def bottom_right():
    m=M(); q,k,v=qkv(m,n=8); s=qk(m,q,k); qi=m.index([8,NK],0); ki=m.index([8,NK],1); e=m.fill('8',[8,NK],'i64'); qi=m.ew('arith.addi',qi,e); c=cmpi(m,'sge',qi,ki,[8,NK]); s=sel(m,c,s,'-3.40282347E+38')
    return m.text(pv(m,m.softmax(s),v))
@case
def top_left():
    m=M(); q,k,v=qkv(m,n=8); s=qk(m,q,k); qi=m.index([8,NK],0); ki=m.index([8,NK],1); c=cmpi(m,'sge',qi,ki,[8,NK]); s=sel(m,c,s,'-3.40282347E+38')
    return m.text(pv(m,m.softmax(s),v))
@case
def no_empty_mean():
    m=M(); q,k,v=qkv(m); s=qk(m,q,k); qi=m.index([N,NK],0); ki=m.index([N,NK],1); c=cmpi(m,'sgt',qi,ki,[N,NK]); s=sel(m,c,s,'-3.40282347E+38')
    return m.text(pv(m,m.softmax(s),v))
@case
def scale_arg():
    m=M(); q,k,v=qkv(m); a=m.arg([],'f32'); s=qk(m,q,k); s=m.generic([s,a],[m.ident([1]*4),[]],m.t[s][0],'f32',lambda n,o:(['%%r = arith.mulf %s, %s : f32'%tuple(n)],'%r'))
    return m.text(pv(m,m.softmax(s),v))
@case
def late_norm():
    m=M(); q,k,v=qkv(m); s=qk(m,q,k); mx=m.keepdim(m.reduce(s,'arith.maximumf','0xFF800000')); e=m.ew('math.exp',m.ew('arith.subf',s,mx)); l=m.keepdim(m.reduce(e,'arith.addf','0.0'))
    return m.text(m.ew('arith.divf',pv(m,e,v),l))
@case
def with_lse():
    m=M(); q,k,v=qkv(m); s=qk(m,q,k); r=m.reduce(s,'arith.maximumf','0xFF800000'); mx=m.keepdim(r); e=m.ew('math.exp',m.ew('arith.subf',s,mx)); rl=m.reduce(e,'arith.addf','0.0'); l=m.keepdim(rl)
    p=m.ew('arith.divf',e,l); return m.text(pv(m,p,v),m.ew('arith.addf',r,m.ew('math.log',rl)))
@case
def no_early_lse():
    m=M(); q,k,v=qkv(m); s=qk(m,q,k); r=m.reduce(s,'arith.maximumf','0xFF800000'); e=m.ew('math.exp',m.ew('arith.subf',s,m.keepdim(r))); rl=m.reduce(e,'arith.addf','0.0'); z=m.ew('math.absf',m.ew('arith.addf',r,m.ew('math.log',rl)))
    return m.text(pv(m,m.ew('arith.divf',e,m.keepdim(rl)),v),z)
@case
def normalized_result():
    m=M(); q,k,v=qkv(m); o=pv(m,m.softmax(qk(m,q,k)),v); other=m.arg([B,H,N,D]); return m.text(m.ew('arith.divf',o,m.keepdim(m.reduce(other,'arith.addf','0.0'))))
@case
def exp_lse():
    m=M(); q,k,v=qkv(m); s=qk(m,q,k); r=m.reduce(s,'arith.maximumf','0xFF800000')
    g=m.generic([r],[m.ident([1]*3)],m.t[r][0],'f32',lambda n,o:(['%%a = math.absf %s : f32'%n[0],'%inf = arith.constant 0x7F800000 : f32','%z = arith.constant 0.0 : f32','%c = arith.cmpf oeq, %a, %inf : f32','%%r = arith.select %%c, %%z, %s : f32'%n[0]],'%r'))
    mx=m.keepdim(g); e=m.ew('math.exp',m.ew('arith.subf',s,mx)); rl=m.reduce(e,'arith.addf','0.0')
    lse=m.keepdim(m.ew('arith.addf',m.ew('math.log',rl),g)); p=m.ew('math.exp',m.ew('arith.subf',s,lse))
    return m.text(pv(m,p,v))
@case
def f16_sdpa():
    m=M(); q,k,v=qkv(m,el='f16'); e=lambda x:m.ew('arith.extf',x,el='f32'); c=m.const('0.5946')
    s=qk(m,m.scalar('arith.mulf',e(q),c),m.scalar('arith.mulf',e(k),c)); o=pv(m,m.softmax(s),e(v)); return m.text(m.ew('arith.truncf',o,el='f16'))
@case
def f16_trunc():
    m=M(); q,k,v=qkv(m,el='f16'); s=m.ew('arith.truncf',qk(m,q,k),el='f16'); p=m.softmax(m.ew('arith.extf',s,el='f32')); p=m.ew('arith.truncf',p,el='f16'); o=pv(m,p,v); return m.text(m.ew('arith.truncf',o,el='f16'))
@case
def f32_result_of_f16():
    m=M(); q,k,v=qkv(m,el='f16'); e=lambda x:m.ew('arith.extf',x,el='f32'); return m.text(pv(m,m.softmax(qk(m,e(q),e(k))),e(v)))
@case
def two_d():
    m=M(); q,k,v=m.arg([N,D]),m.arg([NK,D]),m.arg([NK,D]); s=m.contract(q,k,['d0','d2'],['d1','d2'],[N,NK],3); o=m.contract(m.softmax(s),v,['d0','d2'],['d2','d1'],[N,D],3); return m.text(o)
@case
def decode():
    m=M(); q,k,v=qkv(m,n=1); s=qk(m,q,k); return m.text(pv(m,m.softmax(s),v))
@case
def rank3():
    m=M(); q,k,v=m.arg([8,N,D]),m.arg([8,NK,D]),m.arg([8,NK,D]); s=m.contract(q,k,['d0','d1','d3'],['d0','d2','d3'],[8,N,NK],4); o=m.contract(m.softmax(s),v,['d0','d1','d3'],['d0','d3','d2'],[8,N,D],4); return m.text(o)
@case
def mqa():
    m=M(); q=m.arg([B,H,N,D]); k=m.arg([B,NK,D]); v=m.arg([B,NK,D]); s=m.contract(q,k,['d0','d1','d2','d4'],['d0','d3','d4'],[B,H,N,NK],5); o=m.contract(m.softmax(s),v,['d0','d1','d2','d4'],['d0','d4','d3'],[B,H,N,D],5); return m.text(o)
@case
def mqa_flat():
    m=M(); q=m.arg([B,H,N,D]); k=m.arg([B,NK,D]); v=m.arg([B,NK,D]); qf=m.reshape(q,[[0],[1,2],[3]],[B,H*N,D]); s=m.contract(qf,k,['d0','d1','d3'],['d0','d2','d3'],[B,H*N,NK],4)
    s=m.reshape(s,[[0],[1,2],[3]],[B,H,N,NK]); qi=m.index([N,NK],0); ki=m.index([N,NK],1); s=sel(m,cmpi(m,'sge',qi,ki,[N,NK]),s,'-1.0e9'); p=m.softmax(s)
    p=m.reshape(p,[[0],[1,2],[3]],[B,H*N,NK]); o=m.contract(p,v,['d0','d1','d3'],['d0','d3','d2'],[B,H*N,D],4); return m.text(m.reshape(o,[[0],[1,2],[3]],[B,H,N,D]))
@case
def mqa_flat_nomask():
    m=M(); q=m.arg([B,H,N,D]); k=m.arg([B,NK,D]); v=m.arg([B,NK,D]); qf=m.reshape(q,[[0],[1,2],[3]],[B,H*N,D]); s=m.contract(qf,k,['d0','d1','d3'],['d0','d2','d3'],[B,H*N,NK],4)
    p=m.softmax(s); o=m.contract(p,v,['d0','d1','d3'],['d0','d3','d2'],[B,H*N,D],4); return m.text(m.reshape(o,[[0],[1,2],[3]],[B,H,N,D]))
@case
def bert_mask():
    m=M(); q,k,v=qkv(m); a=m.arg([B,NK],'f32'); s=qk(m,q,k); one=m.const('1.0'); x=m.scalar('arith.subf',a,one,flip=True); lo=m.const('-3.40282347E+38'); x=m.scalar('arith.mulf',x,lo); x=m.reshape(x,[[0],[1,2,3]],[B,1,1,NK])
    return m.text(pv(m,m.softmax(m.ew('arith.addf',s,x)),v))
@case
def t5_bias():
    m=M(); q,k,v=qkv(m); b=m.arg([1,H,N,NK]); s=m.ew('arith.addf',qk(m,q,k),b); return m.text(pv(m,m.softmax(s),v))
@case
def attn_mask_and_causal():
    m=M(); q,k,v=qkv(m); a=m.arg([B,NK],'i1'); s=qk(m,q,k); qi=m.index([N,NK],0); ki=m.index([N,NK],1); c=cmpi(m,'sle',ki,qi,[N,NK]); a=m.reshape(a,[[0],[1,2,3]],[B,1,1,NK])
    c=m.ew('arith.andi',c,a,shape=[B,1,N,NK],maps=[['d2','d3'],['d0','0','0','d3']]); return m.text(pv(m,m.softmax(sel(m,c,s,'-1.0e30')),v))
@case
def masked_fill_not():
    m=M(); q,k,v=qkv(m); a=m.arg([B,1,1,NK],'i1'); s=qk(m,q,k); return m.text(pv(m,m.softmax(sel(m,a,s,'0xFF800000',False)),v))
@case
def shows_and_hides():
    m=M(); q,k,v=qkv(m); a=m.arg([B,1,1,NK],'i1'); b=m.arg([1,H,N,NK],'i1'); c=m.arg([B,1,N,1],'i1'); s=sel(m,a,qk(m,q,k),'0xFF800000',False); s=sel(m,b,s,'0xFF800000'); return m.text(pv(m,m.softmax(sel(m,c,s,'0xFF800000',False)),v))
@case
def mask_f32_une():
    m=M(); q,k,v=qkv(m); s=qk(m,q,k); qi=m.index([N,NK],0); ki=m.index([N,NK],1); c=cmpi(m,'sge',qi,ki,[N,NK]); f=m.ew('arith.uitofp',c,el='f32'); z=m.const('0.0'); c=m.generic([f],[m.ident([1]*2)],[N,NK],'i1',lambda n,o:(['%%r = arith.cmpf une, %s, %s : f32'%(n[0],z)],'%r'))
    return m.text(pv(m,m.softmax(sel(m,c,s,'0xFF800000')),v))
@case
def other_width():
    m=M(); q,k=m.arg([B,H,N,D]),m.arg([B,H,NK,D]); v=m.arg([B,H,NK,24]); return m.text(pv(m,m.softmax(qk(m,q,k)),v))
@case
def vt_pt():
    m=M(); q,k,v=[m.arg([B,x,H,D]) for x in (N,NK,NK)]; s=m.contract(q,k,['d0','d2','d1','d4'],['d0','d3','d1','d4'],[B,H,N,NK],5); p=m.softmax(s); vt=m.transpose(v,[0,2,3,1]); pt=m.transpose(p,[0,1,3,2]); o=m.contract(vt,pt,['d0','d1','d2','d4'],['d0','d1','d4','d3'],[B,H,D,N],5); return m.text(m.transpose(o,[0,3,1,2]))
@case
def triu_const():
    m=M(); q,k,v=qkv(m); c=m.new(); m.op('%s = arith.constant dense<[%s]> : tensor<16x16xf32>'%(c,', '.join('['+', '.join('0.0' if j<=i else '0xFF800000' for j in range(16))+']' for i in range(16)))); m.t[c]=([16,16],'f32')
    return m.text(pv(m,m.softmax(m.ew('arith.addf',qk(m,q,k),c)),v))
@case
def where_softmax():
    m=M(); q,k,v=qkv(m); a=m.arg([B,1,N,NK],'i1'); s=sel(m,a,qk(m,q,k),'0xFF800000'); mx=m.keepdim(m.reduce(s,'arith.maximumf','0xFF800000')); e=sel(m,a,m.ew('math.exp',m.ew('arith.subf',s,mx)),'0.0'); l=m.keepdim(m.reduce(e,'arith.addf','0.0')); p=m.ew('arith.divf',e,l); p=sel(m,a,p,'0.0'); return m.text(pv(m,p,v))
@case
def no_other_use():
    m=M(); q,k,v=qkv(m); p=m.softmax(qk(m,q,k)); o=pv(m,p,v); return m.text(o,m.reduce(p,'arith.addf','0.0'))
@case
def scale_q_div():
    m=M(); q,k,v=qkv(m); c=m.const('4.0'); s=qk(m,m.scalar('arith.divf',q,c),k); return m.text(pv(m,m.softmax(s),v))
@case
def no_max():
    m=M(); q,k,v=qkv(m); e=m.ew('math.exp',qk(m,q,k)); l=m.keepdim(m.reduce(e,'arith.addf','0.0')); return m.text(pv(m,m.ew('arith.divf',e,l),v))
@case
def two_in_a_row():
    m=M(); q,k,v=qkv(m); o=pv(m,m.softmax(qk(m,q,k)),v); return m.text(pv(m,m.softmax(qk(m,o,k)),v))
@case
def tile_heads():
    m=M(); q=m.arg([B,4,N,D]); k,v=m.arg([B,2,NK,D]),m.arg([B,2,NK,D])
    def rep(x): y=m.generic([x],[['d0','d2','d3','d4']],[B,2,2,NK,D],'f32',lambda n,o:([],n[0])); return m.reshape(y,[[0],[1,2],[3],[4]],[B,4,NK,D])
    return m.text(pv(m,m.softmax(qk(m,q,rep(k))),rep(v)))
@case
def row_bias():
    m=M(); q,k,v=qkv(m); b=m.arg([B,H,N,1]); return m.text(pv(m,m.softmax(m.ew('arith.addf',qk(m,q,k),b)),v))
@case
def scaled_after_bias():
    m=M(); q,k,v=qkv(m); b=m.arg([B,H,N,NK]); c=m.const('0.5'); return m.text(pv(m,m.softmax(m.scalar('arith.mulf',m.ew('arith.addf',qk(m,q,k),b),c)),v))
@case
def scale_per_row():
    m=M(); q,k,v=qkv(m); b=m.arg([B,H,N,1]); return m.text(pv(m,m.softmax(m.ew('arith.mulf',qk(m,q,k),b)),v))
@case
def dropped_row():
    m=M(); q,k,v=qkv(m); p=m.softmax(qk(m,q,k)); qi=m.index([N,1],0); three=m.fill('3',[N,1],'i64'); c=cmpi(m,'eq',qi,three,[N,1]); return m.text(pv(m,sel(m,c,p,'0.0',False),v))
@case
def other_values():
    m=M(); q,k,v=qkv(m); v2=m.arg([B,H,NK,NK]); p=m.softmax(qk(m,q,k)); p2=m.contract(p,v2,['d0','d1','d2','d4'],['d0','d1','d4','d3'],[B,H,N,NK],5); return m.text(pv(m,p2,v))
@case
def no_sigmoid():
    m=M(); q,k,v=qkv(m); s=qk(m,q,k); e=m.ew('math.exp',m.ew('arith.negf',s)); one=m.const('1.0'); p=m.scalar('arith.divf',m.scalar('arith.addf',e,one),one,flip=True); return m.text(pv(m,p,v))
@case
def no_axis():
    m=M(); q,k,v=qkv(m); s=m.transpose(qk(m,q,k),[0,1,3,2]); p=m.transpose(m.softmax(s),[0,1,3,2]); return m.text(pv(m,p,v))
@case
def no_mask_after():
    m=M(); q,k,v=qkv(m); a=m.arg([B,1,N,NK],'i1'); return m.text(pv(m,sel(m,a,m.softmax(qk(m,q,k)),'0.0'),v))
@case
def no_dropout():
    m=M(); q,k,v=qkv(m); a=m.arg([B,H,N,NK]); return m.text(pv(m,m.ew('arith.mulf',m.softmax(qk(m,q,k)),a),v))
@case
def no_max_axis():
    m=M(); q,k,v=qkv(m); s=qk(m,q,k); x=m.reshape(m.reduce(m.transpose(s,[0,1,3,2]),'arith.maximumf','0xFF800000'),[[0],[1],[2,3]],[B,H,1,NK]); e=m.ew('math.exp',m.ew('arith.subf',s,x)); l=m.keepdim(m.reduce(e,'arith.addf','0.0')); return m.text(pv(m,m.ew('arith.divf',e,l),v))
@case
def no_low():
    m=M(); q,k,v=qkv(m); a=m.arg([B,1,N,NK],'i1'); return m.text(pv(m,m.softmax(sel(m,a,qk(m,q,k),'-1.0')),v))
@case
def no_relu():
    m=M(); q,k,v=qkv(m); z=m.const('0.0'); return m.text(pv(m,m.softmax(m.scalar('arith.maximumf',qk(m,q,k),z)),v))
@case
def no_returned_scores():
    m=M(); q,k,v=qkv(m); s=qk(m,q,k); return m.text(pv(m,m.softmax(s),v),s)
@case
def no_returned_max():
    m=M(); q,k,v=qkv(m); s=qk(m,q,k); e=m.ew('math.exp',s); l=m.keepdim(m.reduce(e,'arith.addf','0.0')); return m.text(pv(m,m.ew('arith.divf',e,l),v),m.reduce(s,'arith.maximumf','0xFF800000'))
@case
def no_other_sum():
    m=M(); q,k,v=qkv(m); s=qk(m,q,k); c=m.const('0.5'); e=m.ew('math.exp',s); l=m.keepdim(m.reduce(m.ew('math.exp',m.scalar('arith.mulf',s,c)),'arith.addf','0.0')); return m.text(pv(m,m.ew('arith.divf',e,l),v))
@case
def no_epsilon():
    m=M(); q,k,v=qkv(m); c=m.const('0.5'); e=m.ew('math.exp',qk(m,q,k)); l=m.scalar('arith.addf',m.keepdim(m.reduce(e,'arith.addf','0.0')),c); return m.text(pv(m,m.ew('arith.divf',e,l),v))
@case
def no_twice():
    m=M(); q,k,v=qkv(m); c=m.const('2.0'); return m.text(pv(m,m.scalar('arith.mulf',m.softmax(qk(m,q,k)),c),v))
@case
def no_negative_scale():
    m=M(); q,k,v=qkv(m); c=m.const('-0.125'); return m.text(pv(m,m.softmax(m.scalar('arith.mulf',qk(m,q,k),c)),v))
@case
def scale_per_key():
    m=M(); q,k,v=qkv(m); a=m.arg([B,1,1,NK]); return m.text(pv(m,m.softmax(m.ew('arith.mulf',qk(m,q,k),a)),v))
@case
def no_two_products():
    m=M(); q,k,v=qkv(m); s=m.ew('arith.addf',qk(m,q,k),qk(m,k,q)); return m.text(pv(m,m.softmax(s),v))
@case
def no_mask_before_cap():
    m=M(); q,k,v=qkv(m); a=m.arg([B,1,N,NK],'i1'); return m.text(pv(m,m.softmax(m.ew('math.tanh',sel(m,a,qk(m,q,k),'-1.0e30'))),v))
@case
def no_cap_twice():
    m=M(); q,k,v=qkv(m); return m.text(pv(m,m.softmax(m.ew('math.tanh',m.ew('math.tanh',qk(m,q,k)))),v))
@case
def no_square():
    m=M(); q,k,v=qkv(m); s=qk(m,q,k); return m.text(pv(m,m.softmax(m.ew('arith.mulf',s,s)),v))
@case
def no_sum_of_values():
    m=M(); q,k,v=qkv(m); s=qk(m,q,k); e=m.ew('math.exp',s); l=m.keepdim(m.reduce(s,'arith.addf','0.0')); return m.text(pv(m,m.ew('arith.divf',e,l),v))
@case
def no_doubles():
    m=M(); q,k,v=qkv(m,el='f64'); s=qk(m,q,k,'f64'); e=m.ew('math.exp',s); l=m.keepdim(m.reduce(e,'arith.addf','0.0')); return m.text(pv(m,m.ew('arith.divf',e,l),v,'f64'))
@case
def no_later_row():
    m=M(); q,k,v=qkv(m); p=m.softmax(qk(m,q,k)); o=m.contract(p,v,['d0','d1','d4','d2'],['d0','d1','d4','d3'],[B,H,NK,D],5); return m.text(o)

@case
def scaled_values():
    m=M(); q,k,v=qkv(m); c=m.const('2.0'); return m.text(pv(m,m.softmax(qk(m,q,k)),m.scalar('arith.mulf',v,c)))
def times(m,x,a,op='arith.mulf'):
    return m.generic([x,a],[m.ident(m.t[x][0]),[]],*m.t[x],lambda n,o:(['%%r = %s %s, %s : %s'%(op,n[0],n[1],m.t[x][1])],'%r'))
@case
def scale_arg_on_q():
    m=M(); q,k,v=qkv(m); a=m.arg([]); return m.text(pv(m,m.softmax(qk(m,times(m,q,a),k)),v))
@case
def scale_arg_in_product():
    m=M(); q,k,v=qkv(m); a=m.arg([]); b,h,n,d=m.t[q][0]; nk=m.t[k][0][2]
    return m.text(pv(m,m.softmax(m.generic([q,k,a],[['d0','d1','d2','d4'],['d0','d1','d3','d4'],[]],[b,h,n,nk],'f32',lambda i,o:(['%%s = arith.mulf %s, %s : f32'%(i[0],i[2]),'%%p = arith.mulf %%s, %s : f32'%i[1],'%r = arith.addf %o, %p : f32'],'%r'),red=1,init=m.fill('0.0',[b,h,n,nk]),loops=5)),v))
@case
def scale_arg_root():
    m=M(); q,k,v=qkv(m); a=m.arg([],'f32'); s=qk(m,q,k); r=m.generic([a],[[]],[],'f32',lambda n,o:(['%%x = arith.mulf %s, %s : f32'%(n[0],n[0]),'%c = arith.constant 4.0 : f32','%y = arith.addf %x, %c : f32','%r = math.rsqrt %y : f32'],'%r')); return m.text(pv(m,m.softmax(times(m,s,r)),v))
@case
def scale_arg_divides_and_bias():
    m=M(); q,k,v=qkv(m); a=m.arg([]); b=m.arg([1,H,N,NK]); c=m.const('2.0'); d=m.generic([a],[[]],[],'f32',lambda n,o:(['%%r = arith.addf %s, %s : f32'%(n[0],c)],'%r')); return m.text(pv(m,m.softmax(m.ew('arith.addf',times(m,qk(m,q,k),d,'arith.divf'),b)),v))
def capped(m,s,c): return m.scalar('arith.mulf',m.ew('math.tanh',m.scalar('arith.divf',s,c)),c)
@case
def scale_arg_capped():
    m=M(); q,k,v=qkv(m); a=m.arg([]); c=m.const('5.0'); s=capped(m,times(m,qk(m,q,k),a),c); qi=m.index([N,NK],0); ki=m.index([N,NK],1); return m.text(pv(m,m.softmax(sel(m,cmpi(m,'sge',qi,ki,[N,NK]),s,'0xFF800000')),v))
@case
def scale_arg_behind_cap():
    m=M(); q,k,v=qkv(m); a=m.arg([]); c=m.const('5.0'); return m.text(pv(m,m.softmax(times(m,capped(m,qk(m,q,k),c),a)),v))
@case
def position_bias_of_arg():
    m=M(); q,k,v=qkv(m); a=m.arg([],'i32'); s=qk(m,q,k); ki=m.index([NK],0,'i32'); c=m.const('0.05')
    b=m.generic([ki,a],[['d0'],[]],[NK],'f32',lambda n,o:(['%%x = arith.addi %s, %s : i32'%tuple(n),'%y = arith.sitofp %x : i32 to f32','%%r = arith.mulf %%y, %s : f32'%c],'%r'))
    return m.text(pv(m,m.softmax(m.ew('arith.addf',s,b)),v))
@case
def masked_and_biased_before_scale():
    m=M(); q,k,v=qkv(m); b=m.arg([1,H,1,NK]); c=m.const('0.25'); s=m.ew('arith.subf',qk(m,q,k),b); qi=m.index([N,NK],0); ki=m.index([N,NK],1)
    s=m.scalar('arith.mulf',sel(m,cmpi(m,'sge',qi,ki,[N,NK]),s,'-1.0e30'),c); return m.text(pv(m,m.softmax(s),v))
@case
def two_biases():
    m=M(); q,k,v=qkv(m); b=m.arg([1,H,N,NK]); a=m.arg([B,1,1,NK]); c=m.const('0.5'); return m.text(pv(m,m.softmax(m.ew('arith.subf',m.scalar('arith.mulf',m.ew('arith.addf',qk(m,q,k),b),c),a)),v))
def exp2(m,s,c):
    mx=m.keepdim(m.reduce(s,'arith.maximumf','0xFF800000')); d=m.ew('arith.subf',s,mx); return m.ew('math.exp2',m.scalar('arith.mulf',d,c) if c else d)
@case
def powers_of_two():
    m=M(); q,k,v=qkv(m); c=m.const('1.44269504'); e=exp2(m,qk(m,q,k),c); return m.text(m.ew('arith.divf',pv(m,e,v),m.keepdim(m.reduce(e,'arith.addf','0.0'))))
@case
def powers_of_two_bias():
    m=M(); q,k,v=qkv(m); b=m.arg([1,H,N,NK]); c=m.const('0.36067376'); d=m.const('1.44269504'); e=exp2(m,m.ew('arith.addf',m.scalar('arith.mulf',qk(m,q,k),c),m.scalar('arith.mulf',b,d)),None); return m.text(pv(m,m.ew('arith.divf',e,m.keepdim(m.reduce(e,'arith.addf','0.0'))),v))
@case
def powers_of_two_lse():
    m=M(); q,k,v=qkv(m); c=m.const('1.44269504'); s=m.scalar('arith.mulf',qk(m,q,k),c); r=m.reduce(s,'arith.maximumf','0xFF800000'); e=m.ew('math.exp2',m.ew('arith.subf',s,m.keepdim(r))); l=m.reduce(e,'arith.addf','0.0')
    x=m.ew('arith.addf',m.ew('math.log2',l),r); n=m.const('0.693147181'); return m.text(pv(m,m.ew('arith.divf',e,m.keepdim(l)),v),m.scalar('arith.mulf',x,n))
@case
def no_row_sink():
    m=M(); q,k,v=qkv(m); s=qk(m,q,k); b=m.arg([B,H,N,1]); c=m.new(); m.op('%s = tensor.concat dim(3) %s, %s : (%s, %s) -> %s'%(c,s,b,T([B,H,N,NK],'f32'),T([B,H,N,1],'f32'),T([B,H,N,NK+1],'f32'))); m.t[c]=([B,H,N,NK+1],'f32')
    p=m.softmax(c); x=m.new(); m.op('%s = tensor.extract_slice %s[0,0,0,0][%d,%d,%d,%d][1,1,1,1] : %s to %s'%(x,p,B,H,N,NK,T([B,H,N,NK+1],'f32'),T([B,H,N,NK],'f32'))); m.t[x]=([B,H,N,NK],'f32')
    return m.text(pv(m,x,v))
@case
def no_late_factor_arg():
    m=M(); q,k,v=qkv(m); b=m.arg([1,H,N,NK]); a=m.arg([]); return m.text(pv(m,m.softmax(times(m,m.ew('arith.addf',qk(m,q,k),b),a)),v))
@case
def no_low_left():
    m=M(); q,k,v=qkv(m); a=m.arg([B,1,N,NK],'i1'); c=m.const('1.0e-6'); return m.text(pv(m,m.softmax(m.scalar('arith.mulf',sel(m,a,qk(m,q,k),'-1.0e9'),c)),v))
@case
def no_turned_mask():
    m=M(); q,k,v=qkv(m); a=m.arg([B,1,N,NK],'i1'); c=m.const('-1.0'); s=m.scalar('arith.mulf',qk(m,q,k),c); return m.text(pv(m,m.softmax(m.scalar('arith.mulf',sel(m,a,s,'0xFF800000'),c)),v))
@case
def no_start_of_sum():
    m=M(); q,k,v=qkv(m); e=m.ew('math.exp',qk(m,q,k)); l=m.reduce(e,'arith.addf','1.0'); return m.text(pv(m,m.ew('arith.divf',e,m.keepdim(l)),v))

@case
def no_double_bias():
    m=M(); q,k,v=qkv(m); b=m.arg([B,H,N,NK],'f64'); s=m.ew('arith.addf',m.ew('arith.extf',qk(m,q,k),el='f64'),b); return m.text(pv(m,m.softmax(m.ew('arith.truncf',s,el='f32')),v))
@case
def rounded_double_bias():
    m=M(); q,k,v=qkv(m); b=m.arg([1,H,N,NK],'f64'); return m.text(pv(m,m.softmax(m.ew('arith.addf',qk(m,q,k),m.ew('arith.truncf',b,el='f32'))),v))
@case
def no_double_result():
    m=M(); q,k,v=qkv(m); return m.text(m.ew('arith.extf',pv(m,m.softmax(qk(m,q,k)),v),el='f64'))
@case
def no_copies_of_the_result():
    m=M(); q,k,v=qkv(m); p=m.softmax(qk(m,q,k)); shape=[B,H,N,D,3]; o=m.generic([p,v],[['d0','d1','d2','d5'],['d0','d1','d5','d3']],shape,'f32',lambda n,o:(['%%p = arith.mulf %s, %s : f32'%tuple(n),'%r = arith.addf %o, %p : f32'],'%r'),red=1,init=m.fill('0.0',shape),loops=6); return m.text(o)
@case
def no_division():
    m=M(); q,k,v=qkv(m); return m.text(pv(m,m.ew('math.exp',qk(m,q,k)),v))
@case
def no_scores_instead():
    m=M(); q,k,v=qkv(m); a=m.arg([B,1,N,NK],'i1'); b=m.arg([B,H,N,NK]); shape=[B,H,N,NK]; s=m.generic([a,qk(m,q,k),b],[['d0','0','d2','d3'],m.ident(shape),m.ident(shape)],shape,'f32',lambda n,o:(['%%r = arith.select %s, %s, %s : f32'%tuple(n)],'%r')); return m.text(pv(m,m.softmax(s),v))
@case
def no_queries():
    m=M(); k,v=m.arg([B,H,NK,D]),m.arg([B,H,NK,D]); s=m.contract(k,k,['d0','d1','d3','d4'],['d0','d1','d3','d4'],[B,H,N,NK],5); return m.text(pv(m,m.softmax(s),v))
@case
def no_batches_of_queries():
    m=M(); q=m.arg([H,N,D]); k,v=m.arg([B,H,NK,D]),m.arg([B,H,NK,D]); s=m.contract(q,k,['d1','d2','d4'],['d0','d1','d3','d4'],[B,H,N,NK],5); return m.text(pv(m,m.softmax(s),v))
@case
def no_single_sum():
    m=M(); q,k,v=qkv(m); e=m.ew('math.exp',qk(m,q,k)); l=m.keepdim(m.reduce(e,'arith.addf','0.0')); return m.text(pv(m,m.ew('arith.divf',m.ew('arith.divf',e,l),l),v))
@case
def no_even_reshape():
    m=M(); q,k,v=m.arg([6,D]),m.arg([NK,D]),m.arg([NK,D]); s=m.contract(q,k,['d0','d2'],['d1','d2'],[6,NK],3); o=m.contract(m.softmax(s),v,['d0','d2'],['d2','d1'],[6,D],3); return m.text(m.reshape(m.reshape(o,[[0,1]],[6*D]),[[0,1]],[4,12]))
@case
def no_inner_of_queries():
    m=M(); q=m.arg([B,H,N]); k,v=m.arg([B,H,NK,D]),m.arg([B,H,NK,D]); s=m.contract(q,k,['d0','d1','d2'],['d0','d1','d3','d4'],[B,H,N,NK],5); return m.text(pv(m,m.softmax(s),v))
@case
def no_single_inner():
    m=M(); q=m.arg([B,H,N,2,4]); k=m.arg([B,H,NK,2,4]); v=m.arg([B,H,NK,D]); s=m.contract(q,k,['d0','d1','d2','d4','d5'],['d0','d1','d3','d4','d5'],[B,H,N,NK],6,red=2); return m.text(pv(m,m.softmax(s),v))
@case
def no_third_factor():
    m=M(); q,k,v=qkv(m); w=m.arg([D]); shape=[B,H,N,NK]; s=m.generic([q,k,w],[['d0','d1','d2','d4'],['d0','d1','d3','d4'],['d4']],shape,'f32',lambda n,o:(['%%w = arith.mulf %s, %s : f32'%(n[0],n[2]),'%%p = arith.mulf %%w, %s : f32'%n[1],'%r = arith.addf %o, %p : f32'],'%r'),red=1,init=m.fill('0.0',shape),loops=5); return m.text(pv(m,m.softmax(s),v))
@case
def no_values_of_keys():
    m=M(); q,k=m.arg([B,H,N,D]),m.arg([B,H,NK,D]); v=m.arg([B,H,4,D]); r=m.generic([v],[['d0','d1','d2','d4']],[B,H,4,4,D],'f32',lambda n,o:([],n[0])); return m.text(pv(m,m.softmax(qk(m,q,k)),m.reshape(r,[[0],[1],[2,3],[4]],[B,H,NK,D])))

def first_keys(m,x,n):
    v=m.new(); m.op('%s = tensor.extract_slice %s[0,0,0,0][%d,%d,%d,%d][1,1,1,1] : %s to %s'%(v,x,B,H,N,n,T(*m.t[x]),T([B,H,N,n],'f32'))); m.t[v]=([B,H,N,n],'f32'); return v
def shown(m,f):
    v=m.new(); m.op('%s = arith.constant dense<[%s]> : %s'%(v,', '.join('['+', '.join(str(f(i,j)).lower() for j in range(NK))+']' for i in range(N)),T([N,NK],'i1'))); m.t[v]=([N,NK],'i1'); return v
@case
def no_pair_scale():
    m=M(); q,k,v=qkv(m); a=m.arg([B,1,N,NK]); return m.text(pv(m,m.softmax(m.ew('arith.mulf',qk(m,q,k),a)),v))
@case
def no_head_scale_of_bias():
    m=M(); q,k,v=qkv(m); a=m.arg([1,H,1,1]); b=m.arg([1,H,N,NK]); return m.text(pv(m,m.softmax(m.ew('arith.mulf',m.ew('arith.addf',qk(m,q,k),b),a)),v))
@case
def no_wide_scale():
    m=M(); q,k,v=qkv(m,el='f16'); a=m.arg([1,H,1,1]); p=m.ew('arith.truncf',m.softmax(m.ew('arith.mulf',qk(m,q,k),a)),el='f16'); return m.text(m.ew('arith.truncf',pv(m,p,v),el='f16'))
@case
def no_constant_rows():
    m=M(); q,k,v=qkv(m); return m.text(pv(m,m.softmax(sel(m,shown(m,lambda i,j:(7*i+3*j*j)%5!=0 and i!=4),qk(m,q,k),'-1.0e9')),v))
@case
def no_rows_of_two_masks():
    m=M(); q,k,v=qkv(m); qi=m.index([N,NK],0); ki=m.index([N,NK],1); s=sel(m,cmpi(m,'sle',ki,qi,[N,NK]),qk(m,q,k),'-1.0e9'); return m.text(pv(m,m.softmax(sel(m,shown(m,lambda i,j:(i+j)%2!=0),s,'-1.0e9')),v))
@case
def no_rows_of_products():
    m=M(); q,k,v=qkv(m); qi=m.index([N,NK],0); ki=m.index([N,NK],1); r=m.ew('arith.remsi',m.ew('arith.muli',qi,ki),m.fill('3',[N,NK],'i64')); return m.text(pv(m,m.softmax(sel(m,cmpi(m,'eq',r,m.fill('1',[N,NK],'i64'),[N,NK]),qk(m,q,k),'-1.0e9')),v))
@case
def no_mask_of_scores():
    m=M(); q,k,v=qkv(m); s=qk(m,q,k); z=m.const('0.0'); c=m.generic([s],[m.ident([1]*4)],m.t[s][0],'i1',lambda n,o:(['%%r = arith.cmpf ogt, %s, %s : f32'%(n[0],z)],'%r')); return m.text(pv(m,m.softmax(sel(m,c,s,'-1.0e9')),v))
@case
def no_hidden_scores_brought_back():
    m=M(); q,k,v=qkv(m); qi=m.index([N,NK],0); ki=m.index([N,NK],1); s=sel(m,cmpi(m,'sle',ki,qi,[N,NK]),qk(m,q,k),'-1.0e5'); x=m.scalar('arith.mulf',m.ew('arith.uitofp',cmpi(m,'sgt',ki,qi,[N,NK]),el='f32'),m.const('1.0e5')); return m.text(pv(m,m.softmax(m.ew('arith.addf',s,x)),v))
@case
def no_sum_of_some_keys():
    m=M(); q,k,v=qkv(m); s=qk(m,q,k); x=first_keys(m,s,8); r=m.reduce(x,'arith.maximumf','0xFF800000'); l=m.reduce(m.ew('math.exp',m.ew('arith.subf',x,m.keepdim(r))),'arith.addf','0.0'); return m.text(pv(m,m.ew('math.exp',m.ew('arith.subf',s,m.keepdim(m.ew('arith.addf',m.ew('math.log',l),r)))),v))
@case
def no_guard_of_some_keys():
    m=M(); q,k,v=qkv(m); a=m.arg([B,1,N,NK],'i1'); s=sel(m,a,qk(m,q,k),'0xFF800000'); r=m.keepdim(m.reduce(first_keys(m,s,3),'arith.maximumf','0xFF800000')); low=m.const('0xFF800000'); z=m.const('0.0')
    p=m.generic([m.softmax(s),r],[m.ident([1]*4),['d0','d1','d2','0']],[B,H,N,NK],'f32',lambda n,o:(['%%c = arith.cmpf oeq, %s, %s : f32'%(n[1],low),'%%r = arith.select %%c, %s, %s : f32'%(z,n[0])],'%r')); return m.text(pv(m,p,v))
@case
def no_sum_of_shown_keys():
    m=M(); q,k,v=qkv(m); a=m.arg([B,1,N,NK],'i1'); s=qk(m,q,k); r=m.keepdim(m.reduce(s,'arith.maximumf','0xFF800000'))
    e=m.ew('math.exp',m.ew('arith.subf',s,r)); l=m.keepdim(m.reduce(sel(m,a,e,'0.0'),'arith.addf','0.0'))
    return m.text(pv(m,m.ew('arith.divf',e,l),v))
@case
def no_encoding(): return two_d().replace('tensor<16x8xf32>','tensor<16x8xf32, "blocked">')

LOOK_ALIKES=['no_','dropped_row','tile_heads']
def looks_alike(name): return name!='no_max' and any(name.startswith(x) for x in LOOK_ALIKES)
if __name__=='__main__':
    asked=sys.argv[1]
    for name,make in cases.items():
        if asked in('forms','look-alikes'):
            if looks_alike(name)==(asked=='look-alikes'): print(make().replace('@NAME','@'+name))
        elif name==asked: print(make().replace('@NAME','@main'))
